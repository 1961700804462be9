//! The words in `#[tool(…)]`.
//!
//! Invariant: each fact is said once, in the words of the configuration; effect and group are said always (A2).

use proc_macro2::{Span, TokenStream};
use quote::quote;
use syn::parse::Parser as _;
use syn::punctuated::Punctuated;
use syn::spanned::Spanned as _;
use syn::{Error, Expr, Lit, MetaNameValue, Result, Token};

const KNOWN: &str = "name, group, effect, data_class, approval, requires_admin, enabled and timeout";

const EFFECTS: [(&str, &str); 3] =
    [("read", "Read"), ("idempotent_write", "IdempotentWrite"), ("write", "Write")];

const DATA_CLASSES: [(&str, &str); 6] = [
    ("public_content", "PublicContent"),
    ("editor_content", "EditorContent"),
    ("source_code", "SourceCode"),
    ("internal_configuration", "InternalConfiguration"),
    ("system_diagnostics", "SystemDiagnostics"),
    ("secret_adjacent", "SecretAdjacent"),
];

/// What a tool's author declares.
pub(crate) struct Facts {
    pub(crate) name: Option<Expr>,
    pub(crate) group: Expr,
    pub(crate) effect: Word,
    pub(crate) data_class: Option<Word>,
    pub(crate) approval: Option<Word>,
    pub(crate) requires_admin: Option<Expr>,
    pub(crate) enabled: Option<Expr>,
    pub(crate) timeout: Option<Expr>,
}

/// A word of a closed list.
pub(crate) struct Word {
    /// As it was written.
    pub(crate) word: &'static str,
    /// The variant that it stands for.
    pub(crate) variant: &'static str,
    pub(crate) span: Span,
}

impl Facts {
    pub(crate) fn parse(tokens: TokenStream) -> Result<Self> {
        let mut said = Said(
            Punctuated::<MetaNameValue, Token![,]>::parse_terminated.parse2(tokens)?.into_iter().collect(),
        );
        let effect = said.word("effect", &EFFECTS)?.ok_or_else(|| {
            Error::new(
                Span::call_site(),
                "`effect` is missing: say `effect = read`, `effect = idempotent_write` or `effect = write`. \
                 It has no default, because it decides whether a person is asked (rule A2)",
            )
        });
        let group = said.take("group")?.ok_or_else(|| {
            Error::new(
                Span::call_site(),
                "`group` is missing: name the family of tools that this one is switched on and off with, \
                 for instance `group = \"content\"` (rule G1)",
            )
        });
        let (effect, group) = match (effect, group) {
            (Ok(effect), Ok(group)) => (effect, group),
            (Err(mut error), Err(other)) => {
                error.combine(other);
                return Err(error);
            }
            (Err(error), Ok(_)) | (Ok(_), Err(error)) => return Err(error),
        };
        let facts = Self {
            effect,
            group,
            name: said.take("name")?,
            data_class: said.word("data_class", &DATA_CLASSES)?,
            approval: said.word("approval", &[("ask", "Asks")])?,
            requires_admin: said.take("requires_admin")?,
            enabled: said.take("enabled")?,
            timeout: said.take("timeout")?,
        };
        match said.0.first() {
            None => Ok(facts),
            Some(unknown) => {
                Err(Error::new_spanned(&unknown.path, format!("a tool has no such fact; there are {KNOWN}")))
            }
        }
    }
}

/// What was said and not understood yet.
struct Said(Vec<MetaNameValue>);

impl Said {
    fn take(&mut self, fact: &str) -> Result<Option<Expr>> {
        let Some(at) = self.0.iter().position(|pair| pair.path.is_ident(fact)) else { return Ok(None) };
        let found = self.0.remove(at);
        match self.0.iter().find(|pair| pair.path.is_ident(fact)) {
            None => Ok(Some(found.value)),
            Some(again) => Err(Error::new_spanned(&again.path, format!("`{fact}` is said twice"))),
        }
    }

    fn word(&mut self, fact: &str, words: &[(&'static str, &'static str)]) -> Result<Option<Word>> {
        let Some(value) = self.take(fact)? else { return Ok(None) };
        let found = words.iter().find(|(word, _)| is_word(&value, word));
        match found {
            Some((word, variant)) => Ok(Some(Word { word, variant, span: value.span() })),
            None => {
                let listed: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
                let listed = listed.join(", ");
                let is_text = matches!(&value, Expr::Lit(literal) if matches!(literal.lit, Lit::Str(_)));
                let hint = if is_text { ", without quotation marks" } else { "" };
                Err(Error::new_spanned(&value, format!("`{fact}` is one of: {listed}{hint}")))
            }
        }
    }
}

fn is_word(value: &Expr, word: &str) -> bool {
    matches!(value, Expr::Path(path) if path.path.is_ident(word))
}

impl Word {
    /// The variant of one of the library's enums.
    pub(crate) fn of(&self, kind: &str) -> TokenStream {
        let (kind, variant) =
            (syn::Ident::new(kind, Span::call_site()), syn::Ident::new(self.variant, self.span));
        quote!(::countersign::#kind::#variant)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(tokens: TokenStream) -> String {
        Facts::parse(tokens)
            .map(drop)
            .unwrap_err()
            .into_iter()
            .map(|error| error.to_string())
            .collect::<Vec<_>>()
            .join(" | ")
    }

    #[test]
    fn rule_a2_effect_has_no_default() {
        assert_eq!(
            refusal(quote!(group = "content")),
            "`effect` is missing: say `effect = read`, `effect = idempotent_write` or `effect = write`. \
             It has no default, because it decides whether a person is asked (rule A2)"
        );
        let both = refusal(quote!());
        assert!(both.contains("`effect` is missing") && both.contains(" | `group` is missing"), "{both}");
    }

    #[test]
    fn rule_a2_effect_is_one_of_three_words() {
        for (value, hint) in
            [(quote!(delete), ""), (quote!("write"), ", without quotation marks"), (quote!(Read), "")]
        {
            assert_eq!(
                refusal(quote!(group = "content", effect = #value)),
                format!("`effect` is one of: read, idempotent_write, write{hint}")
            );
        }
        let facts = Facts::parse(quote!(effect = idempotent_write, group = "content",)).unwrap();
        assert_eq!((facts.effect.word, facts.effect.variant), ("idempotent_write", "IdempotentWrite"));
    }

    #[test]
    fn rule_a2_each_fact_is_known_and_said_once() {
        assert_eq!(
            refusal(quote!(group = "content", effect = read, effect = write)),
            "`effect` is said twice"
        );
        assert_eq!(
            refusal(quote!(group = "content", effect = write, aproval = ask)),
            format!("a tool has no such fact; there are {KNOWN}")
        );
        assert_eq!(
            refusal(quote!(group = "content", effect = write, approval = never)),
            "`approval` is one of: ask"
        );
        assert_eq!(
            refusal(quote!(group = "content", effect = write, data_class = public)),
            "`data_class` is one of: public_content, editor_content, source_code, internal_configuration, \
             system_diagnostics, secret_adjacent"
        );
    }
}
