//! The public names are a promise: adding, removing or renaming one shows here and gets its own review.

#![cfg(test)]

use std::collections::BTreeSet;

const COMMITTED: &str = include_str!("public-names.txt");
const CORE: &str = include_str!("../../core/src/lib.rs");
const RUNTIME: &str = include_str!("../src/lib.rs");
const TESTING: &str = include_str!("../src/testing.rs");
const TYPED: &str = include_str!("../src/typed.rs");

/// The names of all `pub use` lists and `pub mod` lines, with what comes before them.
fn names_of(prefix: &str, source: &str) -> BTreeSet<String> {
    let code: String =
        source.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join(" ");
    let mut names = BTreeSet::new();
    for statement in code.split(';').map(str::trim) {
        if let Some(module) = statement.rsplit_once("pub mod ").map(|(_, module)| module) {
            names.insert(format!("{prefix}::{}", module.trim()));
        } else if let Some((_, used)) = statement.split_once("pub use ") {
            let list = used.split_once('{').map_or_else(
                || used.rsplit("::").next().unwrap_or(used),
                |(_, list)| list.trim_end().trim_end_matches('}'),
            );
            let items = list.split(',').map(str::trim).filter(|item| !item.is_empty());
            names.extend(items.map(|item| {
                let name = item.rsplit_once(" as ").map_or(item, |(_, renamed)| renamed);
                format!("{prefix}::{name}")
            }));
        }
    }
    names
}

/// The public items at the top of a module.
fn items_of(prefix: &str, source: &str) -> BTreeSet<String> {
    let name = |line: &str| {
        let item = line.strip_prefix("pub ")?;
        let (kind, rest) = item.split_once(' ')?;
        let known = ["struct", "enum", "trait", "fn", "type", "const", "mod"].contains(&kind);
        known.then(|| {
            rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default().to_owned()
        })
    };
    source.lines().filter_map(name).map(|name| format!("{prefix}::{name}")).collect()
}

#[test]
fn the_public_names_are_the_committed_ones() {
    let mut found = names_of("countersign_core", CORE);
    found.extend(names_of("countersign", RUNTIME));
    found.extend(items_of("countersign::testing", TESTING));
    found.extend(items_of("countersign::typed", TYPED));
    assert!(found.len() > 150, "the lists were not understood: {found:#?}");
    let committed: BTreeSet<String> = COMMITTED.lines().map(str::to_owned).collect();
    let mut difference = String::new();
    for name in found.difference(&committed) {
        difference += &format!("+ {name}\n");
    }
    for name in committed.difference(&found) {
        difference += &format!("- {name}\n");
    }
    assert!(
        difference.is_empty(),
        "the public names have changed:\n{difference}\
         If that is meant, add the + lines to crates/runtime/tests/public-names.txt, remove the - lines, keep it sorted."
    );
    assert!(COMMITTED.lines().is_sorted(), "public-names.txt is sorted");
}

#[test]
fn a_list_is_understood_however_it_is_written() {
    let source = "//! pub use not::this;\nmod a;\npub mod testing;\npub use a::{A, b as B,\n    c};\npub use d::e;\npub use f::*;\n";
    let names: Vec<String> = names_of("x", source).into_iter().collect();
    assert_eq!(names, ["x::*", "x::A", "x::B", "x::c", "x::e", "x::testing"]);
    let items: Vec<String> =
        items_of("y", "pub struct S {\n    pub field: u8,\n}\npub(crate) fn no() {}\npub fn f<T>() {}\n")
            .into_iter()
            .collect();
    assert_eq!(items, ["y::S", "y::f"]);
}
