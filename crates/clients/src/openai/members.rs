//! A JSON object as a list of names and raw texts.
//!
//! Invariant: order and bytes of every value are as they were received, and no name occurs twice. Not here:
//! what any name means.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, Visitor};
use serde_json::value::RawValue;

/// The members of one object, in order.
#[derive(Debug)]
pub(super) struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'a> Members<'a> {
    /// Reads an object; `None` for everything else, and when a name occurs twice.
    pub(super) fn read(json: &'a str) -> Option<Self> {
        serde_json::from_str(json).ok()
    }

    /// The raw value under a name; `None` when there is none, or `null`.
    pub(super) fn get(&self, name: &str) -> Option<&'a str> {
        let (_, value) = self.0.iter().find(|(own, _)| own == name)?;
        Some(value.get()).filter(|value| *value != "null")
    }

    /// The members under other names, in order.
    pub(super) fn without(&self, names: &[&str]) -> impl Iterator<Item = (&str, &'a str)> {
        let others = self.0.iter().filter(|(own, _)| !names.contains(&own.as_str()));
        others.map(|(own, value)| (own.as_str(), value.get()))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        struct InOrder;

        impl<'de> Visitor<'de> for InOrder {
            type Value = Vec<(String, &'de RawValue)>;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut source: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                let mut seen = std::collections::HashSet::new();
                while let Some((name, value)) = source.next_entry::<String, &RawValue>()? {
                    if !seen.insert(name.clone()) {
                        return Err(A::Error::custom("a name occurs twice"));
                    }
                    members.push((name, value));
                }
                Ok(members)
            }
        }

        source.deserialize_map(InOrder).map(Members)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_and_bytes_are_kept_and_doubled_names_refused() {
        let members = Members::read(r#"{ "b" : [1,  2.50], "a":null, "c":"\u00e9" }"#).unwrap();
        assert_eq!(members.without(&["a"]).collect::<Vec<_>>(), [("b", "[1,  2.50]"), ("c", r#""\u00e9""#)]);
        assert_eq!((members.get("b"), members.get("a"), members.get("d")), (Some("[1,  2.50]"), None, None));
        for json in [r#"{"a":1,"a":2}"#, r#"{"a":1,"\u0061":2}"#, "[]", "7", "{", "{} x", ""] {
            assert!(Members::read(json).is_none(), "{json}");
        }
    }
}
