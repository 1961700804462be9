//! The attribute `arguments`: two derives that agree, on a type without other fields than its own.

use proc_macro2::{TokenStream, TokenTree};
use quote::{ToTokens as _, quote};
use syn::spanned::Spanned as _;
use syn::{Attribute, Error, Field, Fields, Item, Result};

/// Writes the derives in front of the type.
pub(crate) fn expand(words: TokenStream, item: TokenStream) -> Result<TokenStream> {
    if !words.is_empty() {
        return Err(Error::new_spanned(words, "`#[arguments]` takes no words of its own"));
    }
    let item: Item = syn::parse2(item)?;
    let fields: Vec<&Field> = if let Item::Struct(item) = &item {
        if matches!(item.fields, Fields::Unit) {
            return Err(Error::new(
                item.span(),
                "arguments are an object, also where there are none: write `{}` instead of `;`",
            ));
        }
        item.fields.iter().collect()
    } else if let Item::Enum(item) = &item {
        item.variants.iter().flat_map(|variant| &variant.fields).collect()
    } else {
        return Err(Error::new(
            item.span(),
            "`#[arguments]` stands on a struct with named fields, or on a struct or an enum in one",
        ));
    };
    if let Some(attribute) =
        fields.iter().flat_map(|field| &field.attrs).find(|attribute| flattens(attribute))
    {
        return Err(Error::new_spanned(
            attribute,
            "flattened fields cannot be told from unknown ones: make it a field with a name",
        ));
    }
    Ok(quote! {
        #[derive(::countersign::typed::Deserialize, ::countersign::typed::JsonSchema)]
        #[serde(crate = "::countersign::typed::serde", deny_unknown_fields)]
        #[schemars(crate = "::countersign::typed::schemars")]
        #item
    })
}

fn flattens(attribute: &Attribute) -> bool {
    let ours = attribute.path().is_ident("serde") || attribute.path().is_ident("schemars");
    ours && attribute.meta.to_token_stream().into_iter().any(names_flatten)
}

fn names_flatten(token: TokenTree) -> bool {
    match token {
        TokenTree::Group(group) => group.stream().into_iter().any(names_flatten),
        TokenTree::Ident(word) => word == "flatten",
        TokenTree::Punct(_) | TokenTree::Literal(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use quote::quote;

    fn refusal(words: proc_macro2::TokenStream, item: proc_macro2::TokenStream) -> String {
        super::expand(words, item).unwrap_err().to_string()
    }

    #[test]
    fn rule_a5_what_cannot_be_closed_does_not_compile() {
        let flattened = quote!(
            struct Page {
                #[serde(default, flatten)]
                rest: Rest,
            }
        );
        assert_eq!(
            refusal(quote!(), flattened),
            "flattened fields cannot be told from unknown ones: make it a field with a name"
        );
        let unit = refusal(
            quote!(),
            quote!(
                struct Nothing;
            ),
        );
        assert_eq!(unit, "arguments are an object, also where there are none: write `{}` instead of `;`");
        let function = refusal(
            quote!(),
            quote!(
                fn page() {}
            ),
        );
        assert!(function.starts_with("`#[arguments]` stands on a struct with named fields"), "{function}");
        assert_eq!(
            refusal(
                quote!(open),
                quote!(
                    struct Page {}
                )
            ),
            "`#[arguments]` takes no words of its own"
        );
    }

    #[test]
    fn rule_a5_a_word_that_only_looks_like_it_compiles() {
        let page = quote!(
            struct Page {
                #[serde(default = "flatten")]
                flatten: bool,
            }
        );
        assert!(super::expand(quote!(), page).is_ok());
    }
}
