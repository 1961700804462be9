//! The attribute `tool`: from an `impl` block with `call` to an `impl Tool`.
//!
//! Invariant: the block itself is left as it was written; what it means is read off its functions. Input together
//! with a write or with approval is refused here (A3), as it is once more where tools are registered.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens as _, quote, quote_spanned};
use syn::ext::IdentExt as _;
use syn::spanned::Spanned as _;
use syn::{
    Attribute, Error, Expr, ExprLit, FnArg, ImplItem, ImplItemFn, Item, ItemImpl, Lit, Meta, MetaNameValue,
    Result, Type,
};

use crate::facts::Facts;

const CALL: &str = "`call` is `async fn call(&self, arguments: …, cx: &CallContext) -> Result<ToolOutput, ToolError>`; \
                    what a person is to fill in is a second type before `cx`";
const PREVIEW: &str = "`preview` is `async fn preview(&self, arguments: …, cx: &PreviewContext) -> Result<ToolPreview, ToolError>`";

/// Writes the `impl Tool` behind the block.
pub(crate) fn expand(facts: TokenStream, item: TokenStream) -> Result<TokenStream> {
    let block = block(item)?;
    let facts = Facts::parse(facts)?;
    let call = Call::of(&block)?;
    let Some(words) = words(&block.attrs)? else {
        return Err(Error::new(
            block.impl_token.span,
            "what does this tool do? The model is told the documentation comment of this block, and there is none",
        ));
    };
    if let Some(input) = &call.input
        && (facts.effect.word != "read" || facts.approval.is_some())
    {
        return Err(Error::new_spanned(
            input,
            "a tool that writes or asks for approval cannot have a person fill something in: approval comes first and \
             carries no input, so it could never run (rule A3). Let a tool that reads ask for it, and another one write",
        ));
    }

    let spec = spec(&facts, &block, &call, &words)?;
    let timeout = facts.timeout.as_ref().map(|timeout| {
        quote! {
            fn timeout(&self) -> ::core::time::Duration {
                #timeout
            }
        }
    });
    let read = call.read();
    let (names, preview) = (&call.names(), preview(&block, &call)?);
    let (generics, tool, bounds) = (&block.generics, &block.self_ty, &block.generics.where_clause);
    let answer = quote_spanned!(call.returns=> Self::call(self, #names cx).await);
    Ok(quote! {
        #block

        #[::countersign::typed::written::async_trait]
        impl #generics ::countersign::Tool for #tool #bounds {
            fn spec(&self) -> ::countersign::ToolSpec {
                #spec
            }

            #timeout

            async fn call(
                &self,
                arguments: &::countersign::Arguments,
                cx: &::countersign::CallContext,
            ) -> ::core::result::Result<::countersign::ToolOutput, ::countersign::ToolError> {
                #read
                #answer
            }

            #preview
        }
    })
}

fn block(item: TokenStream) -> Result<ItemImpl> {
    let item: Item = syn::parse2(item)?;
    let span = item.span();
    if let Item::Impl(block) = item
        && block.trait_.is_none()
    {
        return Ok(block);
    }
    Err(Error::new(span, "`#[tool]` stands on the type's own `impl` block, the one with `call`"))
}

/// The function that does it.
struct Call<'a> {
    arguments: &'a Type,
    input: Option<&'a Type>,
    returns: Span,
}

impl<'a> Call<'a> {
    fn of(block: &'a ItemImpl) -> Result<Self> {
        let Some(function) = function(block, "call") else {
            return Err(Error::new(block.impl_token.span, format!("a tool has a `call`. {CALL}")));
        };
        let types = types(function, CALL)?;
        let (arguments, input) = match *types {
            [arguments, _] => (arguments, None),
            [arguments, input, _] => (arguments, Some(input)),
            _ => return Err(Error::new(function.sig.span(), CALL)),
        };
        if let Some(borrowed) =
            [Some(arguments), input].into_iter().flatten().find(|given| is_borrowed(given))
        {
            return Err(Error::new_spanned(borrowed, "it is read for this one call: take it by value"));
        }
        Ok(Self { arguments, input, returns: function.sig.output.span() })
    }

    /// Reads what `call` takes.
    fn read(&self) -> TokenStream {
        let Self { arguments: of, input, .. } = self;
        match input {
            None => quote_spanned!(of.span()=> let given = ::countersign::typed::read::<#of>(arguments)?;),
            Some(input) => quote_spanned! {of.span()=>
                let (given, input) = ::countersign::typed::read_with_input::<#of, #input>(arguments)?;
            },
        }
    }

    fn names(&self) -> TokenStream {
        if self.input.is_some() { quote!(given, input,) } else { quote!(given,) }
    }
}

fn function<'a>(block: &'a ItemImpl, name: &str) -> Option<&'a ImplItemFn> {
    block.items.iter().find_map(|item| {
        if let ImplItem::Fn(function) = item
            && function.sig.ident == name
        {
            return Some(function);
        }
        None
    })
}

/// The types of what an async method takes after `&self`.
fn types<'a>(function: &'a ImplItemFn, expected: &str) -> Result<Vec<&'a Type>> {
    let sig = &function.sig;
    let mut inputs = sig.inputs.iter();
    let by_reference = matches!(inputs.next(), Some(FnArg::Receiver(this)) if this.to_token_stream().to_string() == "& self");
    if sig.asyncness.is_none() || !by_reference {
        return Err(Error::new(sig.span(), expected));
    }
    Ok(inputs
        .filter_map(|input| match input {
            FnArg::Typed(typed) => Some(&*typed.ty),
            FnArg::Receiver(_) => None,
        })
        .collect())
}

fn is_borrowed(given: &Type) -> bool {
    matches!(given, Type::Reference(_))
}

fn preview(block: &ItemImpl, call: &Call<'_>) -> Result<Option<TokenStream>> {
    let Some(function) = function(block, "preview") else { return Ok(None) };
    let [_, _] = *types(function, PREVIEW)? else { return Err(Error::new(function.sig.span(), PREVIEW)) };
    let of = call.arguments;
    let shown = quote_spanned!(function.sig.output.span()=> Self::preview(self, given, cx).await);
    Ok(Some(quote! {
        async fn preview(
            &self,
            arguments: &::countersign::Arguments,
            cx: &::countersign::PreviewContext,
        ) -> ::core::option::Option<::core::result::Result<::countersign::ToolPreview, ::countersign::ToolError>> {
            ::core::option::Option::Some(match ::countersign::typed::read::<#of>(arguments) {
                ::core::result::Result::Ok(given) => #shown,
                ::core::result::Result::Err(error) => ::core::result::Result::Err(error),
            })
        }
    }))
}

fn spec(facts: &Facts, block: &ItemImpl, call: &Call<'_>, words: &str) -> Result<TokenStream> {
    let name = match &facts.name {
        Some(name) => name.to_token_stream(),
        None => name_of(&block.self_ty)?.into_token_stream(),
    };
    let group = &facts.group;
    let effect = facts.effect.of("Effect");
    let data_class = facts
        .data_class
        .as_ref()
        .map_or_else(|| quote!(::countersign::DataClass::SecretAdjacent), |class| class.of("DataClass"));
    let of = call.arguments;
    let parameters = quote_spanned!(of.span()=> ::countersign::typed::schema::<#of>());
    let pause = match (&facts.approval, call.input) {
        (Some(approval), _) => approval.of("Pause"),
        (None, Some(input)) => {
            let schema = quote_spanned!(input.span()=> ::countersign::typed::schema::<#input>());
            quote!(::countersign::Pause::NeedsInput(#schema))
        }
        (None, None) => quote!(::countersign::Pause::Runs),
    };
    let requires_admin =
        facts.requires_admin.as_ref().map_or_else(|| quote!(false), |said| said.to_token_stream());
    let enabled = facts.enabled.as_ref().map_or_else(|| quote!(true), |said| said.to_token_stream());
    let name_check = quote_spanned! {name.span()=>
        ::core::assert!(::countersign::ToolName::is_valid(#name), "a tool's name is 1 to 64 of A-Z a-z 0-9 _ -")
    };
    let group_check = quote_spanned! {group.span()=>
        ::core::assert!(
            ::countersign::GroupName::is_valid(#group),
            "a group's name is 1 to 64 of a-z 0-9 _ . - and first a letter or digit"
        )
    };
    Ok(quote! {
        const _: () = #name_check;
        const _: () = #group_check;
        let mut spec = ::countersign::ToolSpec::library(
            ::countersign::typed::written::name(#name),
            #words,
            ::countersign::typed::written::name(#group),
            #effect,
            #data_class,
            #parameters,
        );
        spec.pause = #pause;
        spec.requires_admin = #requires_admin;
        spec.enabled_by_default = #enabled;
        spec
    })
}

/// The documentation comment as a text, unless it is blank.
fn words(attributes: &[Attribute]) -> Result<Option<String>> {
    let mut lines = Vec::new();
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("doc")) {
        match &attribute.meta {
            Meta::NameValue(MetaNameValue {
                value: Expr::Lit(ExprLit { lit: Lit::Str(text), .. }), ..
            }) => {
                let line = text.value();
                lines.push(line.strip_prefix(' ').unwrap_or(&line).to_owned());
            }
            // Hidden from the documentation, and the like: no words.
            Meta::List(_) | Meta::Path(_) => {}
            Meta::NameValue(other) => {
                return Err(Error::new_spanned(
                    other,
                    "what the model is told stands here itself, as a comment",
                ));
            }
        }
    }
    let words = lines.join("\n").trim().to_owned();
    Ok((!words.is_empty()).then_some(words))
}

/// The tool's name, from its type's: `PageDrop` is `page_drop`.
fn name_of(tool: &Type) -> Result<String> {
    let last = if let Type::Path(path) = tool { path.path.segments.last() } else { None };
    let Some(last) = last else {
        return Err(Error::new_spanned(
            tool,
            "this type has no name that a tool could have: say `name = \"…\"`",
        ));
    };
    let letters: Vec<char> = last.ident.unraw().to_string().chars().collect();
    let mut name = String::new();
    for (at, letter) in letters.iter().enumerate() {
        let after_small = at > 0 && !letters[at - 1].is_uppercase() && letters[at - 1] != '_';
        let before_small = at > 0 && letters.get(at + 1).is_some_and(|next| next.is_lowercase());
        if letter.is_uppercase() && (after_small || before_small) && !name.ends_with('_') {
            name.push('_');
        }
        name.extend(letter.to_lowercase());
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(facts: TokenStream, item: TokenStream) -> String {
        expand(facts, item).unwrap_err().to_string()
    }

    fn read() -> TokenStream {
        quote!(group = "content", effect = read)
    }

    #[test]
    fn rule_a3_input_with_a_write_or_with_approval_does_not_compile() {
        let item = || {
            quote! {
                /// Books a room.
                impl Book {
                    async fn call(&self, order: Order, stay: Stay, cx: &CallContext) -> Result<ToolOutput, ToolError> {}
                }
            }
        };
        for facts in [
            quote!(group = "rooms", effect = write),
            quote!(group = "rooms", effect = idempotent_write),
            quote!(group = "rooms", effect = read, approval = ask),
        ] {
            let refusal = refusal(facts, item());
            assert!(
                refusal.starts_with("a tool that writes or asks for approval cannot have a person fill"),
                "{refusal}"
            );
        }
        assert!(expand(quote!(group = "rooms", effect = read), item()).is_ok());
    }

    #[test]
    fn a_tool_without_words_for_the_model_does_not_compile() {
        for comment in [quote!(), quote!(#[doc = " "])] {
            let item = quote!(#comment impl Get { async fn call(&self, page: Page, cx: &CallContext) {} });
            let refusal = refusal(read(), item);
            assert!(
                refusal.contains("The model is told the documentation comment of this block"),
                "{refusal}"
            );
        }
    }

    #[test]
    fn what_a_tool_is_not_says_what_it_is() {
        for function in [
            quote!(
                fn call(&self, page: Page, cx: &CallContext) {}
            ),
            quote!(
                async fn call(page: Page, cx: &CallContext) {}
            ),
            quote!(
                async fn call(&mut self, page: Page, cx: &CallContext) {}
            ),
            quote!(
                async fn call(&self, page: Page) {}
            ),
            quote!(
                async fn call(&self, page: Page, input: Stay, more: Stay, cx: &CallContext) {}
            ),
        ] {
            assert_eq!(refusal(read(), quote!(#[doc = "Gets."] impl Get { #function })), CALL, "{function}");
        }
        let call = quote!(
            async fn call(&self, page: Page, cx: &CallContext) {}
        );
        let preview = quote!(
            async fn preview(&self, cx: &PreviewContext) {}
        );
        assert_eq!(refusal(read(), quote!(#[doc = "Gets."] impl Get { #call #preview })), PREVIEW);
        let borrowed = quote!(
            async fn call(&self, page: &Page, cx: &CallContext) {}
        );
        let refused = refusal(read(), quote!(#[doc = "Gets."] impl Get { #borrowed }));
        assert_eq!(refused, "it is read for this one call: take it by value");
        assert!(
            refusal(
                read(),
                quote!(
                    #[doc = "Gets."]
                    impl Get {}
                )
            )
            .starts_with("a tool has a `call`. ")
        );
        for item in [
            quote!(impl Tool for Get { #call }),
            quote!(#call),
            quote!(
                struct Get;
            ),
        ] {
            assert!(refusal(read(), item).starts_with("`#[tool]` stands on the type's own `impl` block"));
        }
    }

    #[test]
    fn a_tool_is_named_as_its_type() {
        for (tool, name) in [
            (quote!(PageDrop), "page_drop"),
            (quote!(tools::Page<Db>), "page"),
            (quote!(HTTPGet), "http_get"),
            (quote!(Base64Encode), "base64_encode"),
            (quote!(r#Type), "type"),
        ] {
            assert_eq!(name_of(&syn::parse2(tool).unwrap()).unwrap(), name);
        }
        assert!(name_of(&syn::parse2(quote!([u8; 4])).unwrap()).is_err());
    }
}
