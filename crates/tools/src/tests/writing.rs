//! A7 and R3 for the four writers: preview, stale, already done, repeated after a crash; and how files are replaced.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use serde_json::{Value, json};

use super::{Bench, put};
use crate::content::Fingerprint;
use crate::delete_file::DeleteFile;
use crate::edit_file::EditFile;
use crate::list_files::ListFiles;
use crate::move_file::MoveFile;
use crate::path::WorkspacePath;
use crate::read_file::ReadFile;
use crate::tool::FileWork;
use crate::write_file::WriteFile;

fn edit() -> Value {
    json!({ "path": "docs/a.md", "find": "two", "replace": "2" })
}

#[test]
fn rule_a7_a_write_shows_the_difference() {
    let bench = Bench::new();
    let preview =
        bench.preview::<WriteFile>(json!({ "path": "./docs/a.md", "content": "one\n2\nthree\n" })).unwrap();
    let expected = ["--- a/docs/a.md", "+++ b/docs/a.md", "@@ -1,3 +1,3 @@", " one", "-two", "+2", " three"];
    assert_eq!(preview.lines, expected);
    assert_eq!(bench.preview::<EditFile>(edit()).unwrap().lines, expected);
    let preview = bench.preview::<WriteFile>(json!({ "path": "new/b.md", "content": "x" })).unwrap();
    assert_eq!(
        preview.lines,
        [
            "new file new/b.md",
            "--- /dev/null",
            "+++ b/new/b.md",
            "@@ -0,0 +1 @@",
            "+x",
            "\\ No newline at end of file"
        ]
    );
    assert!(!bench.at("new").exists(), "a preview changes nothing");
    let preview = bench.preview::<DeleteFile>(json!({ "path": "docs/a.md" })).unwrap();
    assert_eq!(preview.lines[..3], ["deleted file docs/a.md", "--- a/docs/a.md", "+++ /dev/null"]);
    assert_eq!(preview.lines[4..], ["-one", "-two", "-three"]);
    let preview = bench.preview::<MoveFile>(json!({ "from": "docs/a.md", "to": "b.md" })).unwrap();
    assert_eq!(preview.lines, ["move docs/a.md → b.md"]);
}

#[test]
fn rule_a7_nothing_hides_in_a_preview() {
    let bench = Bench::new();
    put(&bench.at("crlf"), "a\r\n");
    let preview = bench.preview::<WriteFile>(json!({ "path": "crlf", "content": "a\n" })).unwrap();
    assert_eq!(preview.lines[3..], ["-a␍", "+a"]);
    let content = "x\u{1b}[2Ky\u{202e}z\u{200b}\t\n";
    let preview = bench.preview::<WriteFile>(json!({ "path": "crlf", "content": content })).unwrap();
    assert_eq!(preview.lines[4], "+x␛[2Ky<U+202E>z<U+200B>\t");
    fs::write(bench.at("binary"), b"\xff\xfe").unwrap();
    let preview = bench.preview::<WriteFile>(json!({ "path": "binary", "content": "t\n" })).unwrap();
    assert_eq!(preview.lines[0], "replaced file binary (before: 2 bytes, not text)");
    let preview = bench.preview::<DeleteFile>(json!({ "path": "binary" })).unwrap();
    assert_eq!(preview.lines, ["deleted file binary (2 bytes, not text)"]);
    let many = "\n".repeat(60_000);
    let preview = bench.preview::<WriteFile>(json!({ "path": "docs/a.md", "content": many })).unwrap();
    assert_eq!(preview.lines[2], "@@ -1,3 +1,60000 @@ too many lines to compare");
    assert_eq!((preview.lines.len(), preview.lines[1003].as_str()), (1004, "[59000 more lines]"));
    put(&bench.at("big"), &"line\n".repeat(300_000));
    let preview = bench.preview::<DeleteFile>(json!({ "path": "big" })).unwrap();
    assert_eq!(preview.lines, ["deleted file big (1500000 bytes, too many to compare)"]);
    let preview =
        bench.preview::<WriteFile>(json!({ "path": "docs/a.md", "content": "one\ntwo\nthree\n" })).unwrap();
    assert_eq!(preview.lines, ["no change: docs/a.md already has this content"]);
}

#[test]
fn rule_a7_a_preview_of_what_may_never_be_done_fails() {
    let bench = Bench::new();
    for failed in [
        bench.preview::<MoveFile>(json!({ "from": "docs/a.md", "to": "countersign.toml" })),
        bench.preview::<MoveFile>(json!({ "from": "docs/a.md", "to": "./docs/a.md" })),
        bench.preview::<DeleteFile>(json!({ "path": ".countersign/key" })),
        bench.preview::<WriteFile>(json!({ "path": "../x", "content": "" })),
        bench.preview::<EditFile>(json!({ "path": "docs/a.md" })),
    ] {
        assert!(failed.is_err(), "{failed:?}");
    }
}

/// Previews a call that cannot be made, then makes it possible: it must not happen.
fn is_shown_as_failing<W: FileWork>(
    prepare: impl FnOnce(&Bench),
    arguments: &Value,
    why: &str,
    then: impl FnOnce(&Bench),
) {
    let bench = Bench::new();
    prepare(&bench);
    let before = bench.everything();
    let preview = bench.preview::<W>(arguments.clone()).unwrap();
    assert_eq!(preview.lines, ["no change: this call will do nothing", why]);
    let promise = preview.precondition.unwrap();
    let same = bench.run_as_previewed::<W>(arguments.clone(), Some(&promise)).unwrap_err();
    assert_eq!(same, why, "what was shown is what comes of it");
    assert_eq!(bench.everything(), before);
    then(&bench);
    let before = bench.everything();
    let refused = bench.run_as_previewed::<W>(arguments.clone(), Some(&promise)).unwrap_err();
    assert!(refused.contains("changed meanwhile"), "{refused}");
    assert_eq!(bench.everything(), before);
    bench.run::<W>(arguments.clone()).expect("it is possible now");
}

#[test]
fn rule_a7_what_could_not_be_done_when_it_was_shown_is_not_done_later() {
    let edit_of = |path: &str| json!({ "path": path, "find": "four", "replace": "4" });
    let absent = "There is no file or folder `absent`.";
    let appears = |bench: &Bench| put(&bench.at("absent"), "four");
    is_shown_as_failing::<EditFile>(|_| {}, &edit_of("absent"), absent, appears);
    is_shown_as_failing::<MoveFile>(|_| {}, &json!({ "from": "absent", "to": "b.md" }), absent, appears);
    is_shown_as_failing::<EditFile>(
        |_| {},
        &edit_of("docs/a.md"),
        "The text to find does not occur in `docs/a.md`; nothing was changed.",
        |bench| put(&bench.at("docs/a.md"), "four"),
    );
    is_shown_as_failing::<EditFile>(
        |bench| put(&bench.at("docs/a.md"), "four four"),
        &edit_of("docs/a.md"),
        "The text to find occurs 2 times in `docs/a.md` and must occur exactly once; nothing was changed.",
        |bench| put(&bench.at("docs/a.md"), "four"),
    );
    is_shown_as_failing::<EditFile>(
        |bench| fs::write(bench.at("docs/a.md"), b"\xfffour").unwrap(),
        &edit_of("docs/a.md"),
        "`docs/a.md` is not text in UTF-8.",
        |bench| put(&bench.at("docs/a.md"), "four"),
    );
    is_shown_as_failing::<MoveFile>(
        |bench| put(&bench.at("b.md"), ""),
        &json!({ "from": "docs/a.md", "to": "b.md" }),
        "`b.md` already exists; nothing was changed.",
        |bench| fs::remove_file(bench.at("b.md")).unwrap(),
    );
    let sized =
        |bytes: u64| move |bench: &Bench| fs::File::create(bench.at("big")).unwrap().set_len(bytes).unwrap();
    let (big, too_big) = (300 << 20, "`big` has 314572800 bytes; this tool handles at most 268435456.");
    is_shown_as_failing::<DeleteFile>(sized(big), &json!({ "path": "big" }), too_big, sized(5));
    let write = |path: &str| json!({ "path": path, "content": "new" });
    is_shown_as_failing::<WriteFile>(sized(big), &write("big"), too_big, sized(5));
    is_shown_as_failing::<WriteFile>(
        |bench| std::os::unix::fs::symlink("a.md", bench.at("docs/b.md")).unwrap(),
        &write("docs/b.md"),
        "`docs/b.md` is a symbolic link; the file tools do not follow links.",
        |bench| fs::rename(bench.at("docs/a.md"), bench.at("docs/b.md")).unwrap(),
    );
    is_shown_as_failing::<DeleteFile>(
        |bench| fs::create_dir(bench.at("b.md")).unwrap(),
        &json!({ "path": "b.md" }),
        "`b.md` is not a file.",
        |bench| fs::remove_dir(bench.at("b.md")).and_then(|()| fs::write(bench.at("b.md"), "b")).unwrap(),
    );
    is_shown_as_failing::<WriteFile>(
        |_| {},
        &write("docs/a.md/b.md"),
        "`docs/a.md` is not a folder.",
        |bench| fs::remove_file(bench.at("docs/a.md")).unwrap(),
    );
    let mode = |mode| {
        move |bench: &Bench| {
            fs::set_permissions(bench.at("docs/a.md"), fs::Permissions::from_mode(mode)).unwrap();
        }
    };
    let protected = "`docs/a.md` is write-protected.";
    is_shown_as_failing::<DeleteFile>(mode(0o444), &json!({ "path": "docs/a.md" }), protected, mode(0o644));
}

#[test]
fn rule_a7_a_file_that_was_shown_as_absent_is_not_deleted_when_it_appears() {
    let bench = Bench::new();
    for path in ["absent", "no/such/folder/absent"] {
        let arguments = json!({ "path": path });
        let preview = bench.preview::<DeleteFile>(arguments.clone()).unwrap();
        assert_eq!(
            preview.lines,
            [format!("no change: there is no file {path}, so there is nothing to delete")]
        );
        let promise = preview.precondition.unwrap();
        let absent = json!([{ "path": path, "sha256": null, "wanted": null }]);
        assert_eq!(promise["changes"], absent);
        let call = || bench.run_as_previewed::<DeleteFile>(arguments.clone(), Some(&promise));
        assert_eq!(call().unwrap(), format!("There is no file `{path}`, so there was nothing to delete."));
        put(&bench.at(path), "nobody saw this");
        assert_eq!(call().unwrap_err(), format!("`{path}` was changed meanwhile; nothing was done."));
        assert_eq!(bench.content(path), "nobody saw this");
    }
}

/// Previews a call here and runs it in another workspace that holds the same.
fn only_here<W: FileWork>(arguments: &Value) {
    let (here, there) = (Bench::new(), Bench::new());
    let promise = here.promise::<W>(arguments.clone());
    let before = there.everything();
    let refused = there.run_as_previewed::<W>(arguments.clone(), Some(&promise)).unwrap_err();
    assert_eq!(refused, "The workspace was changed meanwhile; nothing was done.");
    assert_eq!(there.everything(), before);
    let place = here.outer.path().to_str().unwrap();
    assert!(!promise.to_string().contains(place), "it says nothing of the machine: {promise}");
    // Opened anew, as after a restart, it is the same; and by another way to the same folder, too.
    let link = here.outer.path().join("link");
    std::os::unix::fs::symlink(here.root(), &link).unwrap();
    let again = super::open(&link);
    crate::tool::run::<W>(&again, arguments.clone(), Some(&promise)).unwrap();
}

#[test]
fn rule_a7_what_was_approved_for_one_workspace_is_done_in_no_other() {
    only_here::<WriteFile>(&json!({ "path": "docs/a.md", "content": "new" }));
    only_here::<WriteFile>(&json!({ "path": "docs/b.md", "content": "new" }));
    only_here::<EditFile>(&edit());
    only_here::<MoveFile>(&json!({ "from": "docs/a.md", "to": "b.md" }));
    only_here::<DeleteFile>(&json!({ "path": "docs/a.md" }));
    only_here::<DeleteFile>(&json!({ "path": "absent" }));
    // Not even told that it is done already: it is not known that it is.
    let (here, there) = (Bench::new(), Bench::new());
    let write = json!({ "path": "docs/a.md", "content": "new" });
    let promise = here.promise::<WriteFile>(write.clone());
    put(&there.at("docs/a.md"), "new");
    assert!(there.run_as_previewed::<WriteFile>(write, Some(&promise)).is_err());
}

#[test]
fn rule_a7_a_workspace_that_was_moved_or_made_anew_is_another() {
    let bench = Bench::new();
    let promise = bench.promise::<EditFile>(edit());
    let elsewhere = bench.outer.path().join("elsewhere");
    fs::rename(bench.root(), &elsewhere).unwrap();
    let moved = super::open(&elsewhere);
    let refused = crate::tool::run::<EditFile>(&moved, edit(), Some(&promise)).unwrap_err();
    assert!(refused.to_string().contains("changed meanwhile"), "{refused}");
    put(&bench.at("docs/a.md"), "one\ntwo\nthree\n");
    let copy = super::open(&bench.root());
    let refused = crate::tool::run::<EditFile>(&copy, edit(), Some(&promise)).unwrap_err();
    assert!(refused.to_string().contains("changed meanwhile"), "{refused}");
    assert_eq!(bench.content("docs/a.md"), "one\ntwo\nthree\n");
    assert_eq!(fs::read_to_string(elsewhere.join("docs/a.md")).unwrap(), "one\ntwo\nthree\n");
    // Back at its place it is itself again.
    fs::remove_dir_all(bench.root()).unwrap();
    fs::rename(&elsewhere, bench.root()).unwrap();
    crate::tool::run::<EditFile>(&super::open(&bench.root()), edit(), Some(&promise)).unwrap();
}

/// Previews a call, runs it, and runs it again as after a crash; the world must be the same after both.
fn twice<W: FileWork>(bench: &Bench, arguments: &Value, again: &str) {
    let promise = bench.promise::<W>(arguments.clone());
    bench.run_as_previewed::<W>(arguments.clone(), Some(&promise)).unwrap();
    let after = bench.everything();
    assert_eq!(bench.run_as_previewed::<W>(arguments.clone(), Some(&promise)).unwrap(), again);
    assert_eq!(bench.everything(), after);
}

#[test]
fn rule_r3_a_write_repeated_after_a_crash_is_a_success_and_changes_nothing() {
    let bench = Bench::new();
    let write = json!({ "path": "new/deep/b.md", "content": "text" });
    twice::<WriteFile>(&bench, &write, "`new/deep/b.md` already has this content (4 bytes).");
    twice::<EditFile>(&bench, &edit(), "`docs/a.md` already has this change.");
    assert_eq!(bench.content("docs/a.md"), "one\n2\nthree\n");
    let insert = json!({ "path": "docs/a.md", "find": "2", "replace": "22" });
    twice::<EditFile>(&bench, &insert, "`docs/a.md` already has this change.");
    assert_eq!(bench.content("docs/a.md"), "one\n22\nthree\n");
    let to = json!({ "from": "docs/a.md", "to": "far/away/c.md" });
    twice::<MoveFile>(&bench, &to, "`docs/a.md` is already moved to `far/away/c.md`.");
    twice::<DeleteFile>(&bench, &json!({ "path": "far/away/c.md" }), "`far/away/c.md` is already deleted.");
}

#[test]
fn rule_r3_a_move_cut_in_half_is_finished() {
    let bench = Bench::new();
    let arguments = json!({ "from": "docs/a.md", "to": "b.md" });
    let promise = bench.promise::<MoveFile>(arguments.clone());
    fs::hard_link(bench.at("docs/a.md"), bench.at("b.md")).unwrap();
    bench.run_as_previewed::<MoveFile>(arguments.clone(), Some(&promise)).unwrap();
    assert!(!bench.at("docs/a.md").exists());
    assert_eq!(bench.content("b.md"), "one\ntwo\nthree\n");
    bench.run_as_previewed::<MoveFile>(arguments, Some(&promise)).unwrap();
}

/// Previews a call, lets the world change, and expects that the call leaves it alone.
fn stale<W: FileWork>(arguments: &Value, change: impl FnOnce(&Bench)) {
    let bench = Bench::new();
    let promise = bench.promise::<W>(arguments.clone());
    change(&bench);
    let before = bench.everything();
    let refused = bench.run_as_previewed::<W>(arguments.clone(), Some(&promise)).unwrap_err();
    assert!(refused.contains("changed meanwhile"), "{refused}");
    assert_eq!(bench.everything(), before);
}

#[test]
fn rule_a7_changed_meanwhile_is_an_error_and_nothing_happens() {
    let write = json!({ "path": "docs/a.md", "content": "new" });
    let fresh = json!({ "path": "docs/b.md", "content": "new" });
    let delete = json!({ "path": "docs/a.md" });
    let to = json!({ "from": "docs/a.md", "to": "b.md" });
    let touch = |bench: &Bench| put(&bench.at("docs/a.md"), "one\ntwo\nthree\nfour\n");
    let remove = |bench: &Bench| fs::remove_file(bench.at("docs/a.md")).unwrap();
    stale::<WriteFile>(&write, touch);
    stale::<WriteFile>(&write, remove);
    stale::<WriteFile>(&fresh, |bench| put(&bench.at("docs/b.md"), "someone else's"));
    stale::<EditFile>(&edit(), touch);
    stale::<EditFile>(&edit(), remove);
    stale::<DeleteFile>(&delete, touch);
    stale::<MoveFile>(&to, touch);
    stale::<MoveFile>(&to, remove);
    stale::<MoveFile>(&to, |bench| put(&bench.at("b.md"), "someone else's"));
    stale::<MoveFile>(&to, |bench| put(&bench.at("b.md"), "one\ntwo\nthree\n"));
}

#[test]
fn rule_a7_what_someone_else_did_already_is_a_success() {
    let bench = Bench::new();
    let promise = bench.promise::<EditFile>(edit());
    put(&bench.at("docs/a.md"), "one\n2\nthree\n");
    assert!(bench.run_as_previewed::<EditFile>(edit(), Some(&promise)).unwrap().contains("already"));
    let delete = json!({ "path": "docs/a.md" });
    let promise = bench.promise::<DeleteFile>(delete.clone());
    fs::remove_file(bench.at("docs/a.md")).unwrap();
    assert!(bench.run_as_previewed::<DeleteFile>(delete, Some(&promise)).unwrap().contains("already"));
}

#[test]
fn rule_a7_a_promise_fits_only_its_own_call() {
    let bench = Bench::new();
    let promise = bench.promise::<WriteFile>(json!({ "path": "docs/a.md", "content": "new" }));
    let before = bench.everything();
    let foreign = "What was previewed is not this call; nothing was done.";
    for promise in [promise, Value::Null, json!([]), json!({ "path": "docs/a.md" }), json!("x")] {
        let promise = Some(&promise);
        for refused in [
            bench.run_as_previewed::<WriteFile>(json!({ "path": "docs/a.md", "content": "other" }), promise),
            bench.run_as_previewed::<WriteFile>(json!({ "path": "b.md", "content": "new" }), promise),
            bench.run_as_previewed::<EditFile>(edit(), promise),
            bench.run_as_previewed::<DeleteFile>(json!({ "path": "docs/a.md" }), promise),
            bench.run_as_previewed::<MoveFile>(json!({ "from": "docs/a.md", "to": "b.md" }), promise),
        ] {
            assert_eq!(refused.unwrap_err(), foreign);
        }
    }
    assert_eq!(bench.everything(), before);
}

#[test]
fn the_text_to_find_must_occur_exactly_once() {
    let bench = Bench::new();
    put(&bench.at("a"), "aaa é é\n");
    put(&bench.at("many"), &"x".repeat(1000));
    let edit =
        |path: &str, find: &str| bench.run::<EditFile>(json!({ "path": path, "find": find, "replace": "-" }));
    assert!(edit("a", "aa").unwrap_err().contains("occurs 2 times"));
    assert!(edit("a", "é").unwrap_err().contains("occurs 2 times"));
    assert!(edit("many", "x").unwrap_err().contains("more than 100 times"));
    assert!(edit("a", "").is_err());
    assert!(edit("a", "b").unwrap_err().contains("does not occur"));
    assert_eq!(edit("absent", "b").unwrap_err(), "There is no file or folder `absent`.");
    assert_eq!(bench.content("a"), "aaa é é\n");
    edit("a", "aaa").unwrap();
    assert_eq!(bench.content("a"), "- é é\n");
}

#[test]
fn a_move_never_replaces() {
    let bench = Bench::new();
    put(&bench.at("b.md"), "b");
    let shift = |from: &str, to: &str| bench.run::<MoveFile>(json!({ "from": from, "to": to }));
    assert!(shift("docs/a.md", "b.md").unwrap_err().contains("already exists"));
    assert!(shift("docs/a.md", "docs").is_err());
    assert!(shift("docs", "other").unwrap_err().contains("is not a file"));
    assert!(shift("docs/a.md", "./docs//a.md").unwrap_err().contains("same path"));
    assert!(shift("absent", "c.md").unwrap_err().starts_with("There is no"));
    assert_eq!((bench.content("b.md").as_str(), bench.at("docs/a.md").exists()), ("b", true));
    shift("docs/a.md", "x/y/a.md").unwrap();
    assert_eq!(bench.content("x/y/a.md"), "one\ntwo\nthree\n");
}

#[test]
fn a_file_made_during_the_call_is_not_replaced() {
    let bench = Bench::new();
    let visit = bench.workspace.visit();
    let place = |path: &str| visit.place(&WorkspacePath::file(path).unwrap()).unwrap();
    let (from, to) = (place("docs/a.md"), place("b.md"));
    put(&bench.at("b.md"), "someone else's");
    let before = bench.everything();
    assert!(crate::change::put(&visit, &to, None, b"mine").is_err());
    let source = Fingerprint::of(b"one\ntwo\nthree\n");
    assert!(crate::change::relocate(&visit, &from, &to, &source).is_err());
    assert_eq!(bench.everything(), before, "not even a draft is left");
}

#[test]
fn where_the_system_cannot_rename_without_replacing_a_link_does_it() {
    let bench = Bench::new();
    put(&bench.at("docs/b.md"), "b");
    let docs = bench.workspace.visit().folder(&WorkspacePath::folder("docs").unwrap()).unwrap().dir;
    assert!(crate::change::link_to_free_name((&docs, "a.md"), (&docs, "b.md")).is_err());
    assert_eq!((bench.content("docs/a.md").len(), bench.content("docs/b.md").as_str()), (14, "b"));
    crate::change::link_to_free_name((&docs, "a.md"), (&docs, "c.md")).unwrap();
    assert_eq!((bench.at("docs/a.md").exists(), bench.content("docs/c.md").len()), (false, 14));
}

#[test]
fn a_replaced_file_keeps_its_permissions_and_a_reader_its_content() {
    let bench = Bench::new();
    let path = bench.at("docs/a.md");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o4640)).unwrap();
    let (reader, inode) = (fs::read_link(&path).is_err(), fs::metadata(&path).unwrap().ino());
    assert!(reader);
    fs::hard_link(&path, bench.at("second")).unwrap();
    bench.run::<EditFile>(edit()).unwrap();
    let replaced = fs::metadata(&path).unwrap();
    assert_eq!(replaced.mode() & 0o7777, 0o640);
    assert_ne!(replaced.ino(), inode);
    assert_eq!(bench.content("second"), "one\ntwo\nthree\n");
}

#[test]
fn a_write_protected_file_is_left_alone() {
    let bench = Bench::new();
    fs::set_permissions(bench.at("docs/a.md"), fs::Permissions::from_mode(0o444)).unwrap();
    let before = bench.everything();
    for refused in [
        bench.run::<EditFile>(edit()),
        bench.run::<WriteFile>(json!({ "path": "docs/a.md", "content": "" })),
        bench.run::<DeleteFile>(json!({ "path": "docs/a.md" })),
        bench.run::<MoveFile>(json!({ "from": "docs/a.md", "to": "b.md" })),
    ] {
        assert_eq!(refused.unwrap_err(), "`docs/a.md` is write-protected.");
    }
    assert_eq!(bench.everything(), before);
}

#[test]
fn only_files_are_deleted_and_a_missing_one_is_no_error() {
    let bench = Bench::new();
    assert_eq!(bench.run::<DeleteFile>(json!({ "path": "docs" })).unwrap_err(), "`docs` is not a file.");
    bench.run::<DeleteFile>(json!({ "path": "docs/a.md" })).unwrap();
    let again = bench.run::<DeleteFile>(json!({ "path": "docs/a.md" })).unwrap();
    assert_eq!(again, "There is no file `docs/a.md`, so there was nothing to delete.");
    assert!(bench.at("docs").exists());
}

#[test]
fn what_a_crash_left_is_never_seen_and_swept_by_a_later_write() {
    let bench = Bench::new();
    let (old, young) = (crate::leftover::fresh_name(), crate::leftover::fresh_name());
    for name in [&old, &young] {
        put(&bench.at(&format!("docs/{name}")), "half");
        assert!(bench.run::<ReadFile>(json!({ "path": format!("docs/{name}") })).is_err());
        assert!(bench.run::<WriteFile>(json!({ "path": format!("docs/{name}"), "content": "" })).is_err());
    }
    assert_eq!(bench.run::<ListFiles>(json!({ "path": "docs" })).unwrap(), "docs/a.md\n");
    let file = fs::File::options().write(true).open(bench.at(&format!("docs/{old}"))).unwrap();
    let present = file.metadata().unwrap().modified().unwrap();
    file.set_modified(present - std::time::Duration::from_secs(7200)).unwrap();
    bench.run::<WriteFile>(json!({ "path": "docs/b.md", "content": "b" })).unwrap();
    assert!(!bench.at(&format!("docs/{old}")).exists(), "two hours old: nobody is writing it");
    assert!(bench.at(&format!("docs/{young}")).exists(), "it may be in use");
    assert!(!crate::leftover::is_leftover(".countersign-notes.tmp"));
}

#[test]
fn text_of_every_kind_comes_back_as_it_was_written() {
    let bench = Bench::new();
    for content in ["", "\n", "a\r\nb\rc", "nul \0 inside", "é🦀\u{feff}", "no end"] {
        bench.run::<WriteFile>(json!({ "path": "t", "content": content })).unwrap();
        assert_eq!(bench.content("t"), content);
    }
}
