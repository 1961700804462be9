//! What the three reading tools answer, and where they stop.

use std::fs;
use std::os::unix::ffi::OsStrExt as _;

use countersign::CONTENT_BYTES_MAX;
use serde_json::json;

use super::{Bench, put};
use crate::list_files::ListFiles;
use crate::read_file::ReadFile;
use crate::search_files::SearchFiles;

#[test]
fn lists_are_in_the_order_of_the_bytes_of_the_paths() {
    let bench = Bench::new();
    for path in ["t/a/x", "t/a-b", "t/a.txt", "t/B", "t/é", "t/a/b/c", "t/.hidden", "t/.git/config"] {
        put(&bench.at(path), "");
    }
    let listed = bench.run::<ListFiles>(json!({ "path": "t", "recursive": true })).unwrap();
    let lines: Vec<&str> = listed.lines().collect();
    assert_eq!(
        lines,
        ["t/.git/", "t/.hidden", "t/B", "t/a-b", "t/a.txt", "t/a/", "t/a/b/", "t/a/b/c", "t/a/x", "t/é"]
    );
    assert!(lines.is_sorted());
    assert_eq!(bench.run::<ListFiles>(json!({ "path": "t/.git/" })).unwrap(), "t/.git/config\n");
}

#[test]
fn an_empty_folder_a_missing_one_and_a_file_are_said_so() {
    let bench = Bench::new();
    fs::create_dir(bench.at("empty")).unwrap();
    let list = |path: &str| bench.run::<ListFiles>(json!({ "path": path }));
    assert_eq!(list("empty").unwrap(), "The folder `empty` is empty.");
    assert_eq!(list("absent").unwrap_err(), "There is no file or folder `absent`.");
    assert_eq!(list("docs/a.md").unwrap_err(), "`docs/a.md` is not a folder.");
}

#[test]
fn names_that_no_path_can_say_are_counted_and_not_shown() {
    let bench = Bench::new();
    for name in [&b"bad\xff"[..], b"line\nbreak", b"back\\slash", b"dot."] {
        fs::write(bench.at("docs").join(std::ffi::OsStr::from_bytes(name)), "").unwrap();
    }
    let listed = bench.run::<ListFiles>(json!({ "path": "docs" })).unwrap();
    assert_eq!(listed, "docs/a.md\n[4 more with names that cannot be used here]");
}

#[test]
fn rule_l4_a_long_list_stops_and_says_where() {
    let bench = Bench::new();
    for number in 0..1500 {
        put(&bench.at(&format!("many/{number:04}-{}", "x".repeat(40))), "");
    }
    let listed = bench.run::<ListFiles>(json!({ "recursive": true })).unwrap();
    assert!(listed.len() <= CONTENT_BYTES_MAX);
    assert!(
        listed.ends_with("the list is too long; list a folder below instead]"),
        "{}",
        &listed[listed.len() - 200..]
    );
}

#[test]
fn lines_are_read_from_where_the_call_says() {
    let bench = Bench::new();
    let read = |from: u64, lines: u64| {
        bench.run::<ReadFile>(json!({ "path": "docs/a.md", "from_line": from, "lines": lines }))
    };
    assert_eq!(read(1, 100).unwrap(), "one\ntwo\nthree\n");
    assert_eq!(read(2, 1).unwrap(), "two\n[lines 2 to 2 of a file of 14 bytes; go on with from_line 3]");
    assert_eq!(read(3, 1).unwrap(), "three\n");
    assert_eq!(read(4, 1).unwrap_err(), "`docs/a.md` ends with line 3; there is no line 4.");
    put(&bench.at("empty"), "");
    assert_eq!(bench.run::<ReadFile>(json!({ "path": "empty" })).unwrap(), "[`empty` is empty]");
    put(&bench.at("open"), "a\nb");
    assert_eq!(bench.run::<ReadFile>(json!({ "path": "open" })).unwrap(), "a\nb");
}

#[test]
fn rule_l4_a_long_file_is_read_in_parts_that_miss_nothing() {
    let bench = Bench::new();
    let whole: String = (0..10_000).map(|number| format!("line {number} é\n")).collect();
    put(&bench.at("long"), &whole);
    let (mut from, mut collected) = (1, String::new());
    loop {
        let part = bench.run::<ReadFile>(json!({ "path": "long", "from_line": from })).unwrap();
        assert!(part.len() <= CONTENT_BYTES_MAX);
        let Some((text, note)) = part.rsplit_once("\n[lines") else {
            collected.push_str(&part);
            break;
        };
        collected.push_str(text);
        collected.push('\n');
        from = note.rsplit_once("from_line ").unwrap().1.trim_end_matches(']').parse().unwrap();
    }
    assert_eq!(collected, whole);
}

#[test]
fn rule_l4_one_line_too_long_is_cut_on_a_character() {
    let bench = Bench::new();
    put(&bench.at("wide"), &format!("first\n{}\nlast\n", "é".repeat(100_001)));
    let part = bench.run::<ReadFile>(json!({ "path": "wide" })).unwrap();
    assert_eq!(part, "first\n[lines 1 to 1 of a file of 200014 bytes; go on with from_line 2]");
    let part = bench.run::<ReadFile>(json!({ "path": "wide", "from_line": 2 })).unwrap();
    assert!(
        part.len() <= CONTENT_BYTES_MAX
            && part.starts_with("éé")
            && part.ends_with("go on with from_line 3]")
    );
    assert_eq!(bench.run::<ReadFile>(json!({ "path": "wide", "from_line": 3 })).unwrap(), "last\n");
}

#[test]
fn a_huge_file_costs_no_memory_and_ends_at_the_bound() {
    let bench = Bench::new();
    fs::File::create(bench.at("huge")).unwrap().set_len(1 << 40).unwrap();
    let read = bench.run::<ReadFile>(json!({ "path": "huge", "from_line": 2 }));
    assert_eq!(read.unwrap_err(), "`huge` has 1099511627776 bytes; this tool handles at most 67108864.");
    let found = bench.run::<SearchFiles>(json!({ "text": "one" })).unwrap();
    assert!(found.starts_with("docs/a.md:1: one\n[1 files or folders too large"), "{found}");
}

#[test]
fn what_is_not_utf8_is_said_so() {
    let bench = Bench::new();
    fs::write(bench.at("latin"), b"caf\xe9\n").unwrap();
    assert_eq!(
        bench.run::<ReadFile>(json!({ "path": "latin" })).unwrap_err(),
        "`latin` is not text in UTF-8."
    );
}

#[test]
fn a_search_is_literal_and_knows_its_limits() {
    let bench = Bench::new();
    put(&bench.at("b.txt"), "a.c\nabc\nA.C\n");
    fs::write(bench.at("binary"), b"a.c\0").unwrap();
    let search = |arguments| bench.run::<SearchFiles>(arguments);
    assert_eq!(search(json!({ "text": "a.c" })).unwrap(), "b.txt:1: a.c");
    assert_eq!(search(json!({ "text": "a", "path": "b.txt" })).unwrap(), "b.txt:1: a.c\nb.txt:2: abc");
    let limited = search(json!({ "text": "a", "path": "b.txt", "limit": 1 })).unwrap();
    assert!(limited.starts_with("b.txt:1: a.c\n[stopped early: there are more lines"), "{limited}");
    for text in ["", "a\nb"] {
        assert!(search(json!({ "text": text })).is_err());
    }
    put(&bench.at("wide"), &"w".repeat(1000));
    assert_eq!(search(json!({ "text": "www" })).unwrap(), format!("wide:1: {}…", "w".repeat(300)));
}
