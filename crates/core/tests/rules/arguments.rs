//! A5, C16, C30: arguments as a model sends them.

use countersign_core::*;
use proptest::prelude::*;
use serde_json::Value;

fn problem(text: &str) -> ArgumentsError {
    Arguments::read(Some(text)).unwrap_err()
}

#[test]
fn case_c30_a_double_encoded_object_is_not_unwrapped() {
    let inner = r#"{"name":"page_get","arguments":{"id":7}}"#;
    assert_eq!(problem(&Value::from(inner).to_string()), ArgumentsError::NotAnObject { found: "a text" });
    let kept = Arguments::read(Some(inner)).unwrap();
    assert_eq!(
        kept.members().keys().collect::<Vec<_>>(),
        ["name", "arguments"],
        "it is what it is; the schema decides"
    );
}

#[test]
fn case_c30_only_the_blanks_of_json_are_blank() {
    for text in [" \t\r\n", "null", " null "] {
        assert_eq!(Arguments::read(Some(text)).unwrap(), Arguments::default(), "{text:?}");
    }
    for text in [
        "\u{a0}",
        "\u{feff}{}",
        "NULL",
        "undefined",
        "nul",
        "{",
        "}",
        "{}{}",
        "{},",
        "'{}'",
        "{\"a\":1,}",
        "{a:1}",
    ] {
        assert!(matches!(problem(text), ArgumentsError::Unreadable { .. }), "{text:?}: {}", problem(text));
    }
}

#[test]
fn case_c16_keys_in_another_case_are_other_keys() {
    let kept = Arguments::read(Some(r#"{"id":1,"ID":7}"#)).unwrap();
    assert_eq!(kept.canonical(), r#"{"ID":7,"id":1}"#);
    for text in [r#"{"a":[{"x":1,"x":1}]}"#, r#"{"":1,"":2}"#, r#"{"é":1,"\u00e9":2}"#] {
        assert!(problem(text).to_string().contains("occurs twice"), "{text}");
    }
}

#[test]
fn rule_a5_what_is_no_number_is_no_number_that_is_too_large() {
    for text in [
        r#"{"a":1-2}"#,
        r#"{"a":-}"#,
        r#"{"a":--1}"#,
        r#"{"a":+1}"#,
        r#"{"a":01}"#,
        r#"{"a":1e999}"#,
        r#"{"a":NaN}"#,
    ] {
        assert!(matches!(problem(text), ArgumentsError::Unreadable { .. }), "{text}: {}", problem(text));
    }
    for digits in ["18446744073709551616", "-9223372036854775809", "100000000000000000000000000"] {
        let wanted = ArgumentsError::IntegerOutOfRange { digits: digits.to_owned() };
        assert_eq!(problem(&format!(r#"{{"a":{digits}}}"#)), wanted);
    }
}

#[test]
fn rule_a5_integers_keep_their_digits_and_doubles_are_doubles() {
    let kept = Arguments::read(Some(r#"{"a":9007199254740993,"b":1.10,"c":0.1e1,"d":1E2}"#)).unwrap();
    assert_eq!(kept.canonical(), r#"{"a":9007199254740993,"b":1.1,"c":1,"d":100}"#);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn rule_a5_any_text_is_read_or_refused(text in r#"[{}\[\]",:0-9a-c\\\-+.eE \u{e9}]{0,40}"#) {
        if let Ok(read) = Arguments::read(Some(&text)) {
            let stored = serde_json::to_string(&read).unwrap();
            prop_assert_eq!(Arguments::read(Some(&stored)).unwrap().canonical(), read.canonical());
        }
    }

    #[test]
    fn rule_a5_every_integer_of_64_bits_is_kept(signed in any::<i64>(), unsigned in any::<u64>()) {
        let text = format!(r#"{{"s":{signed},"u":{unsigned}}}"#);
        prop_assert_eq!(Arguments::read(Some(&text)).unwrap().canonical(), text);
    }

    /// As it is stored. The canonical text writes a double of 2^64 or more as RFC 8785 wants it, without an
    /// exponent up to 1e21, and is there for the digest only.
    #[test]
    fn rule_a5_every_double_comes_back_the_same(number in any::<f64>().prop_filter("finite", |number| number.is_finite())) {
        let read = Arguments::read(Some(&format!(r#"{{"n":{number:e}}}"#))).unwrap();
        let back = Arguments::read(Some(&serde_json::to_string(&read).unwrap())).unwrap();
        let of = |arguments: &Arguments| arguments.members()["n"].as_f64();
        prop_assert_eq!(of(&read), Some(number));
        prop_assert_eq!(of(&back), Some(number));
    }

    /// A6: the digest's text does not depend on the order of keys. A5: what is stored, shown and run keeps it.
    #[test]
    fn case_c12_the_order_of_keys_is_kept_and_not_hashed(
        members in prop::collection::btree_map("[a-e\u{e9}\u{fb33}\u{1f600}]{1,2}", 0_u8..9, 1..6).prop_flat_map(|members| {
            let members: Vec<_> = members.into_iter().collect();
            (Just(members.clone()).prop_shuffle(), Just(members).prop_shuffle())
        }),
    ) {
        let object = |members: &[(String, u8)]| {
            let written: Vec<_> = members.iter().map(|(name, value)| format!(r#""{name}":{value}"#)).collect();
            format!("{{{}}}", written.join(","))
        };
        let text = |members: &[(String, u8)]| format!(r#"{{"z":{},"a":[{}]}}"#, object(members), object(members));
        let (one, other) = (text(&members.0), text(&members.1));
        let read = |text: &str| Arguments::read(Some(text)).unwrap();
        prop_assert_eq!(read(&one).canonical(), read(&other).canonical());
        prop_assert_eq!(&read(&one), &read(&other), "equal whatever their order");
        for text in [&one, &other] {
            prop_assert_eq!(&read(text).text(), text);
            let stored = serde_json::to_string(&read(text)).unwrap();
            prop_assert_eq!(&serde_json::from_str::<Arguments>(&stored).unwrap().text(), text);
            prop_assert_eq!(&read(text).to_value().to_string(), text);
        }
    }

    /// R9: declared keys are the person's, all others the model's.
    #[test]
    fn vector_ti02_vector_ti03_each_side_writes_its_own_fields(
        model in prop::collection::btree_map("[a-d]", 0_u8..9, 0..4),
        person in prop::collection::btree_map("[a-d]", 10_u8..19, 0..4),
        declared in prop::sample::subsequence(vec!["a", "b", "c", "d"], 0..=4),
    ) {
        let read = |members: &std::collections::BTreeMap<String, u8>| Arguments::read(Some(&serde_json::json!(members).to_string())).unwrap();
        let both = read(&model).overlaid(&declared, &read(&person));
        for key in ["a", "b", "c", "d"] {
            let from = if declared.contains(&key) { &person } else { &model };
            prop_assert_eq!(both.members().get(key).and_then(Value::as_u64), from.get(key).map(|value| u64::from(*value)), "{}", key);
        }
    }
}
