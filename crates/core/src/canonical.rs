//! One text for one JSON value: RFC 8785, except that integers keep their digits (A6).
//!
//! Invariant: equal values give equal canonical text, and different values different text. No float is made of an
//! integer on the way, which is why the standard's own canonicalizers cannot be used. Beside it the same text with
//! the members in the order in which they were written, which is what a tool is sent (A5).

use serde_json::Value;

/// The canonical text of a value.
pub fn canonical(value: &Value) -> String {
    let mut out = String::new();
    write(value, Order::Canonical, &mut out);
    out
}

/// The text of a value as it was written: the canonical one, except that each object keeps its order.
pub(crate) fn as_written(value: &Value) -> String {
    let mut out = String::new();
    write(value, Order::AsWritten, &mut out);
    out
}

/// In which order the members of an object stand.
#[derive(Clone, Copy)]
enum Order {
    Canonical,
    AsWritten,
}

fn write(value: &Value, order: Order, out: &mut String) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(true) => out.push_str("true"),
        Value::Bool(false) => out.push_str("false"),
        Value::Number(number) => match number.as_f64() {
            Some(double) if number.is_f64() => out.push_str(ryu_js::Buffer::new().format(double)),
            Some(_) | None => out.push_str(&number.to_string()),
        },
        Value::String(text) => string(text, out),
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write(item, order, out);
            }
            out.push(']');
        }
        Value::Object(members) => {
            let mut ordered: Vec<_> = members.iter().collect();
            match order {
                // RFC 8785 sorts by UTF-16 code units, not by bytes.
                Order::Canonical => {
                    ordered.sort_by(|(left, _), (right, _)| left.encode_utf16().cmp(right.encode_utf16()));
                }
                Order::AsWritten => {}
            }
            out.push('{');
            for (index, (name, member)) in ordered.into_iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                string(name, out);
                out.push(':');
                write(member, order, out);
            }
            out.push('}');
        }
    }
}

fn string(text: &str, out: &mut String) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{8}' => out.push_str("\\b"),
            '\t' => out.push_str("\\t"),
            '\n' => out.push_str("\\n"),
            '\u{c}' => out.push_str("\\f"),
            '\r' => out.push_str("\\r"),
            control if control < ' ' => out.push_str(&format!("\\u{:04x}", u32::from(control))),
            other => out.push(other),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn rule_a6_order_and_spacing_do_not_count() {
        let one: Value = serde_json::from_str(r#"{"b":1,"a":[1,2.0]}"#).unwrap();
        let other: Value = serde_json::from_str(r#" { "a" : [ 1 , 2.0 ] , "b" : 1 } "#).unwrap();
        assert_eq!(canonical(&one), canonical(&other));
        assert_eq!(canonical(&one), r#"{"a":[1,2],"b":1}"#);
    }

    #[test]
    fn rule_a6_integers_keep_their_digits() {
        let value: Value =
            serde_json::from_str("[9007199254740993,18446744073709551615,-9223372036854775808]").unwrap();
        assert_eq!(canonical(&value), "[9007199254740993,18446744073709551615,-9223372036854775808]");
    }

    #[test]
    fn rule_a6_doubles_are_written_as_the_standard_says() {
        for (given, wanted) in [
            ("1e30", "1e+30"),
            ("4.50", "4.5"),
            ("2e-3", "0.002"),
            ("0.000000000000000000000000001", "1e-27"),
            ("-0.0", "0"),
            ("333333333.33333329", "333333333.3333333"),
        ] {
            let value: Value = serde_json::from_str(given).unwrap();
            assert_eq!(canonical(&value), wanted, "{given}");
        }
    }

    #[test]
    fn rule_a6_keys_sort_by_utf16_and_strings_escape_as_the_standard_says() {
        // The example of RFC 8785, section 3.2.3: an emoji sorts before U+FB33 in UTF-16.
        let value =
            json!({"\u{20ac}": 1, "\r": 2, "\u{fb33}": 3, "1": 4, "\u{1f600}": 5, "\u{80}": 6, "\u{f6}": 7});
        assert_eq!(
            canonical(&value),
            "{\"\\r\":2,\"1\":4,\"\u{80}\":6,\"\u{f6}\":7,\"\u{20ac}\":1,\"\u{1f600}\":5,\"\u{fb33}\":3}"
        );
        assert_eq!(canonical(&json!("\u{1}\u{1f}\u{7f}/\"\\")), "\"\\u0001\\u001f\u{7f}/\\\"\\\\\"");
    }
}
