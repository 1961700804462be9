//! A call's arguments: one JSON object, read strictly or not at all (A5).
//!
//! Invariant: an [`Arguments`] has no doubled key, no integer that lost a digit, at most 4 MiB and depth 64, and
//! its keys stand in the order in which they were written. What a person is shown, what is hashed and what runs is
//! this one value; only the digest does not look at the order (A6). Not here: the tool's schema (the runtime's
//! registry) and any repair, unwrapping or guessing.

use std::fmt;

use serde::de::{self, DeserializeSeed, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::canonical::{as_written, canonical};

/// The largest text of arguments that is read, in bytes (A5).
pub const ARGUMENTS_BYTES_MAX: usize = 4 * 1024 * 1024;
/// The deepest nesting that is read; the object itself is depth 1 (A5).
pub const ARGUMENTS_DEPTH_MAX: usize = 64;

/// Arguments that were read strictly. Equal are those that differ in the order of keys only.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Arguments(Map<String, Value>);

/// Why a text is not arguments. The sentence is for the model, which may do better next time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArgumentsError {
    /// More than [`ARGUMENTS_BYTES_MAX`].
    #[error("the arguments are {bytes} bytes long; at most {ARGUMENTS_BYTES_MAX} are read")]
    TooLong {
        /// The length of the text.
        bytes: usize,
    },
    /// An array, a number, a text: anything but an object.
    #[error("the arguments must be one JSON object, not {found}")]
    NotAnObject {
        /// What they are.
        found: &'static str,
    },
    /// An integer outside −2⁶³…2⁶⁴−1.
    #[error("the arguments hold the integer {digits}, which does not fit into 64 bits")]
    IntegerOutOfRange {
        /// The integer, cut to 40 characters.
        digits: String,
    },
    /// Not JSON, a doubled key, trailing data, too deep.
    #[error("the arguments are not valid JSON: {reason}")]
    Unreadable {
        /// What is wrong, and where.
        reason: String,
    },
}

impl Arguments {
    /// Reads arguments as a model sent them. Absent, empty, blank and `null` mean `{}`.
    ///
    /// # Errors
    /// [`ArgumentsError`] for everything that is not exactly one strict JSON object.
    pub fn read(text: Option<&str>) -> Result<Self, ArgumentsError> {
        let text = text.unwrap_or_default().trim_matches([' ', '\t', '\n', '\r']);
        if text.len() > ARGUMENTS_BYTES_MAX {
            return Err(ArgumentsError::TooLong { bytes: text.len() });
        }
        if text.is_empty() || text == "null" {
            return Ok(Self::default());
        }
        let found = match text.as_bytes()[0] {
            b'[' => Some("an array"),
            b'"' => Some("a text"),
            b't' | b'f' => Some("true or false"),
            b'-' | b'0'..=b'9' => Some("a number"),
            _ => None,
        };
        if let Some(found) = found {
            return Err(ArgumentsError::NotAnObject { found });
        }
        if let Some(digits) = integer_out_of_range(text) {
            return Err(ArgumentsError::IntegerOutOfRange { digits: digits.chars().take(40).collect() });
        }
        let unreadable = |error: serde_json::Error| ArgumentsError::Unreadable { reason: error.to_string() };
        let mut source = serde_json::Deserializer::from_str(text);
        let value = Strict { depth: 1 }.deserialize(&mut source).map_err(unreadable)?;
        source.end().map_err(unreadable)?;
        match value {
            Value::Object(members) => Ok(Self(members)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                Err(ArgumentsError::NotAnObject { found: "something else" })
            }
        }
    }

    /// The members by name.
    pub fn members(&self) -> &Map<String, Value> {
        &self.0
    }

    /// The arguments as a JSON value.
    pub fn to_value(&self) -> Value {
        Value::Object(self.0.clone())
    }

    /// The text that a tool is sent and a person is shown: keys as they were written, in their order (A5).
    pub fn text(&self) -> String {
        as_written(&Value::Object(self.0.clone()))
    }

    /// The canonical text, which the digest covers (A6). Whatever runs is given [`Arguments::text`].
    pub fn canonical(&self) -> String {
        canonical(&Value::Object(self.0.clone()))
    }

    /// The members whose names are to be kept, in their order.
    #[must_use]
    pub fn only(&self, keep: impl Fn(&str) -> bool) -> Self {
        Self(
            self.0
                .iter()
                .filter(|(name, _)| keep(name))
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect(),
        )
    }

    /// The person's values replace the model's for the declared keys only; neither side writes the
    /// other's fields (R9). The model's keys keep their order; those that only the person filled in come last.
    #[must_use]
    pub fn overlaid(&self, declared: &[&str], answer: &Self) -> Self {
        let mut members = self.0.clone();
        for key in declared {
            match answer.0.get(*key) {
                Some(value) => drop(members.insert((*key).to_owned(), value.clone())),
                // Not `remove`, which moves the last key into the gap.
                None => drop(members.shift_remove(*key)),
            }
        }
        Self(members)
    }
}

impl<'de> Deserialize<'de> for Arguments {
    fn deserialize<D: de::Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        match (Strict { depth: 1 }).deserialize(source)? {
            Value::Object(members) => Ok(Self(members)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                Err(de::Error::custom("arguments are one JSON object"))
            }
        }
    }
}

/// The first integer literal that 64 bits cannot hold. Looks at the text, because a parser has already
/// made a double of it.
fn integer_out_of_range(text: &str) -> Option<&str> {
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'"' => {
                at += 1;
                while at < bytes.len() && bytes[at] != b'"' {
                    at += if bytes[at] == b'\\' { 2 } else { 1 };
                }
                at += 1;
            }
            b'-' | b'0'..=b'9' => {
                let start = at;
                while at < bytes.len() && matches!(bytes[at], b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9')
                {
                    at += 1;
                }
                let number = &text[start..at];
                let digits = number.strip_prefix('-').unwrap_or(number);
                let is_integer = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
                if is_integer && number.parse::<i64>().is_err() && number.parse::<u64>().is_err() {
                    return Some(number);
                }
            }
            _ => at += 1,
        }
    }
    None
}

/// Reads any JSON value, refusing doubled keys and too deep nesting.
struct Strict {
    depth: usize,
}

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = Value;
    fn deserialize<D: de::Deserializer<'de>>(self, source: D) -> Result<Value, D::Error> {
        if self.depth > ARGUMENTS_DEPTH_MAX + 1 {
            return Err(de::Error::custom(format_args!("nested deeper than {ARGUMENTS_DEPTH_MAX}")));
        }
        source.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = Value;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Value, E> {
        serde_json::Number::from_f64(value)
            .map(Value::Number)
            .ok_or_else(|| E::custom("a number that is not finite"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        self.is_allowed()?;
        let mut array = Vec::new();
        while let Some(item) = items.next_element_seed(Strict { depth: self.depth + 1 })? {
            array.push(item);
        }
        Ok(Value::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        self.is_allowed()?;
        let mut seen = Map::new();
        while let Some(name) = members.next_key::<String>()? {
            if seen.contains_key(&name) {
                return Err(de::Error::custom(format_args!("the key {name:?} occurs twice")));
            }
            let member = members.next_value_seed(Strict { depth: self.depth + 1 })?;
            seen.insert(name, member);
        }
        Ok(Value::Object(seen))
    }
}

impl Strict {
    /// A container may stand at depth 64, a scalar in it one below.
    fn is_allowed<E: de::Error>(&self) -> Result<(), E> {
        if self.depth > ARGUMENTS_DEPTH_MAX {
            return Err(E::custom(format_args!("nested deeper than {ARGUMENTS_DEPTH_MAX}")));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(text: &str) -> String {
        Arguments::read(Some(text)).unwrap_err().to_string()
    }

    #[test]
    fn case_c30_nothing_is_an_empty_object() {
        for text in [None, Some(""), Some("  \n"), Some("null"), Some("{}"), Some(" {} ")] {
            assert_eq!(Arguments::read(text).unwrap(), Arguments::default(), "{text:?}");
        }
    }

    #[test]
    fn case_c30_everything_else_must_be_an_object() {
        for (text, word) in
            [("[1]", "array"), ("7", "number"), (r#""{\"id\":7}""#, "text"), ("true", "true or false")]
        {
            assert!(reason(text).contains(word), "{text}: {}", reason(text));
        }
    }

    #[test]
    fn case_c16_a_doubled_key_is_refused() {
        assert!(reason(r#"{"id":1,"id":7}"#).contains("\"id\" occurs twice"));
        assert!(reason(r#"{"a":{"x":1,"\u0078":2}}"#).contains("occurs twice"));
        let with_nul = Arguments::read(Some(r#"{"id":1,"id\u0000":7}"#)).unwrap();
        assert_eq!(with_nul.members().len(), 2, "another key is another key");
    }

    #[test]
    fn rule_a5_trailing_data_is_refused() {
        assert!(reason(r#"{"id":1} {"id":2}"#).contains("trailing"));
        assert!(reason(r#"{"id":1}x"#).contains("trailing"));
    }

    #[test]
    fn rule_a5_integers_fit_or_are_refused() {
        let kept = Arguments::read(Some(r#"{"a":-9223372036854775808,"b":18446744073709551615}"#)).unwrap();
        assert_eq!(kept.canonical(), r#"{"a":-9223372036854775808,"b":18446744073709551615}"#);
        assert!(reason(r#"{"a":18446744073709551616}"#).contains("18446744073709551616"));
        assert!(reason(r#"{"a":[-9223372036854775809]}"#).contains("64 bits"));
        assert!(
            Arguments::read(Some(r#"{"a":"18446744073709551616","b":1e300,"c":"\\\"99999999999999999999"}"#))
                .is_ok()
        );
    }

    #[test]
    fn rule_a5_depth_and_length_are_bounded() {
        let nested = |depth: usize| format!("{}{}", "{\"a\":".repeat(depth - 1) + "{", "}".repeat(depth));
        assert!(Arguments::read(Some(&nested(64))).is_ok());
        assert!(reason(&nested(65)).contains("deeper than 64"));
        assert!(reason(&"[".repeat(10_000)).contains("array"));
        assert!(reason(&format!("{{\"a\":{}", "[".repeat(10_000))).contains("deeper than 64"));
        let long = format!("{{\"a\":\"{}\"}}", "x".repeat(ARGUMENTS_BYTES_MAX));
        assert!(reason(&long).contains("at most"));
    }

    #[test]
    fn vector_ti02_vector_ti03_neither_side_writes_the_others_fields() {
        let model = Arguments::read(Some(r#"{"why":"trip","date":"model"}"#)).unwrap();
        let person = Arguments::read(Some(r#"{"date":"2027","why":"changed"}"#)).unwrap();
        assert_eq!(model.overlaid(&["date"], &person).canonical(), r#"{"date":"2027","why":"trip"}"#);
        assert_eq!(model.overlaid(&["date"], &Arguments::default()).canonical(), r#"{"why":"trip"}"#);
    }

    #[test]
    fn rule_r9_the_models_keys_keep_their_order_and_new_ones_come_last() {
        let model = Arguments::read(Some(r#"{"why":"trip","date":"model","by":"train"}"#)).unwrap();
        let person = Arguments::read(Some(r#"{"seat":7,"date":"2027"}"#)).unwrap();
        let both = model.overlaid(&["seat", "date"], &person);
        assert_eq!(both.text(), r#"{"why":"trip","date":"2027","by":"train","seat":7}"#);
        let none = model.overlaid(&["why"], &Arguments::default());
        assert_eq!(none.text(), r#"{"date":"model","by":"train"}"#);
        assert_eq!(model.only(|name| name != "why").text(), r#"{"date":"model","by":"train"}"#);
    }
}
