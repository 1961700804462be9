use super::*;

fn opinion(front: &str) -> Result<Option<Vec<String>>, String> {
    parse(&format!("---\nname: editor\n{front}\n---\n\nEdit well.\n")).map(|skill| skill.allowed_tools)
}

fn only(names: &[&str]) -> Result<Option<Vec<String>>, String> {
    Ok(Some(names.iter().map(|name| (*name).to_owned()).collect()))
}

#[test]
fn rule_g6_no_key_is_no_opinion_and_a_key_without_a_value_is_an_opinion_of_nothing() {
    assert_eq!(opinion(""), Ok(None));
    for nothing in ["allowed-tools:", "allowed-tools: []", "allowed-tools: ~", "allowed-tools: ''"] {
        assert_eq!(opinion(nothing), only(&[]), "{nothing}");
    }
    for two in [
        "allowed-tools: [a, b]",
        "allowed-tools:\n  - a\n  - b",
        "allowed-tools: a  b",
        "allowed-tools: \"a b\"",
    ] {
        assert_eq!(opinion(two), only(&["a", "b"]), "{two}");
    }
    assert_eq!(opinion("allowed-tools: A"), only(&["A"]), "rule G10: byte for byte");
}

#[test]
fn rule_g6_what_cannot_be_read_with_certainty_is_an_error() {
    for (front, expected) in [
        ("allowed-tools: 7", "must be a list of names"),
        ("allowed-tools: {a: b}", "must be a list of names"),
        ("allowed-tools: [a, 7]", "must be a list of names"),
        ("allowed_tools: [a]", "did you mean allowed-tools?"),
        ("Allowed-Tools: a", "did you mean allowed-tools?"),
        ("allowed-tools: [a]\nallowed-tools: [b]", "the same key twice"),
        ("x: &a [1]\ny: *a", "alias"),
        ("!!int allowed-tools: []", "tag"),
        ("x: !mine {allowed-tools: []}", "tag"),
        ("x: !!set [1]", "tag"),
        ("<<: {allowed-tools: []}", "merge"),
        ("? [allowed-tools]\n: []", "no text"),
        ("x: \"open", "not valid YAML"),
        (&format!("x: {}", "[".repeat(100)), "nested too deep"),
    ] {
        let problem = opinion(front).unwrap_err();
        assert!(problem.contains(expected), "{front}: {problem}");
    }
    assert!(parse("Edit well.").unwrap_err().contains("no front matter"));
    assert!(parse("---\nname: a\n").unwrap_err().contains("has no end"));
    assert!(parse("---\n- a\n---\n").unwrap_err().contains("keys with values"));
}

#[test]
fn the_text_is_what_follows_the_front_matter() {
    let skill = parse("\u{feff}---\r\nname: editor\r\n---\r\nEdit.\r\n\r\n---\r\nWell.\r\n").unwrap();
    assert_eq!(
        (skill.calls_itself.as_deref(), skill.prose.as_str()),
        (Some("editor"), "Edit.\r\n\r\n---\r\nWell.")
    );
    assert_eq!(parse("---\n---\n").unwrap().prose, "");
}

#[test]
fn rule_g6_the_last_texts_are_dropped_first_and_still_count() {
    assert_eq!(fitting(&[PROSE_BYTES_MAX]), 1);
    assert_eq!(fitting(&[PROSE_BYTES_MAX - 1, 2, 1]), 1);
    assert_eq!(fitting(&[PROSE_BYTES_MAX + 1, 1]), 0);
    let folder = tempfile::tempdir().unwrap();
    let big = "x".repeat(PROSE_BYTES_MAX);
    for (name, text) in [("first", "short"), ("second", big.as_str())] {
        std::fs::create_dir(folder.path().join(name)).unwrap();
        let text = format!("---\nallowed-tools: {name}\n---\n{text}");
        std::fs::write(folder.path().join(name).join(FILE), text).unwrap();
    }
    let environment = crate::environment::Environment::of(folder.path(), &[]);
    let mut config = Config::find(None, &environment).unwrap();
    config.skill_paths = vec![folder.path().to_owned()];
    let found = in_force(&config, &["first".to_owned(), "second".to_owned(), "gone".to_owned()]);
    let said: Vec<_> = found
        .skills
        .iter()
        .map(|skill| (skill.allowed_tools.clone().unwrap().join(" "), skill.prose_left_out))
        .collect();
    assert_eq!(said, [("first".to_owned(), false), ("second".to_owned(), true), (String::new(), false)]);
    assert_eq!(found.prose, "\n\n# Skill: first\n\nshort");
}
