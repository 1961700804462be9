//! Nothing outside the workspace can be named, reached, or made to hang a call.

use std::fs;
use std::os::unix::fs::symlink;

use serde_json::{Value, json};

use super::{Bench, put};
use crate::Workspace;
use crate::delete_file::DeleteFile;
use crate::edit_file::EditFile;
use crate::list_files::ListFiles;
use crate::move_file::MoveFile;
use crate::path::{PathError, WorkspacePath};
use crate::read_file::ReadFile;
use crate::search_files::SearchFiles;
use crate::write_file::WriteFile;

/// Tries one path with every tool that takes one; all must refuse, and nothing may change.
fn nobody_takes(bench: &Bench, path: &str) {
    let before = bench.everything();
    let refusals = [
        bench.run::<ReadFile>(json!({ "path": path })),
        bench.run::<WriteFile>(json!({ "path": path, "content": "mine" })),
        bench.run::<EditFile>(json!({ "path": path, "find": "the", "replace": "my" })),
        bench.run::<MoveFile>(json!({ "from": path, "to": "taken.md" })),
        bench.run::<MoveFile>(json!({ "from": "docs/a.md", "to": path })),
        bench.preview_refuses::<WriteFile>(json!({ "path": path, "content": "mine" })),
        bench.preview_refuses::<DeleteFile>(json!({ "path": path })),
    ];
    for refusal in refusals {
        assert!(refusal.is_err(), "{path:?}: {refusal:?}");
    }
    // Deleting what is not there is no error, but it does nothing.
    let _answer = bench.run::<DeleteFile>(json!({ "path": path }));
    let found = bench.run::<SearchFiles>(json!({ "text": "the secret", "path": path }));
    assert!(!found.unwrap_or_default().contains("secret"), "{path:?}");
    assert_eq!(bench.everything(), before, "{path:?}");
}

#[test]
fn case_c45_no_spelling_leads_outside() {
    let bench = Bench::new();
    let secret = bench.outer.path().join("secrets/k");
    for path in [
        "docs/../secrets/k",
        "../secrets/k",
        "docs/../../secrets/k",
        "docs/x\nsecrets/k",
        "docs/x\0../secrets/k",
        "docs//..//secrets/k",
        "docs//..//..//secrets/k",
        "..",
        "docs/..",
        "./../secrets/k",
        "..\\secrets\\k",
        "docs\\..\\..\\secrets\\k",
        "C:\\secrets\\k",
        "C:/secrets/k",
        "c:secrets",
        "\\\\server\\share\\k",
        "/secrets/k",
        "//secrets/k",
        secret.to_str().unwrap(),
        "",
        ".",
        "./",
        "/",
        "docs",
        "docs/",
        "docs/.",
        "docs/a.md/",
        "docs/a.md/.",
        "docs/a.md/x",
        "docs/a.md.",
        "docs /a.md",
        "docs/\u{202e}dm.a",
        "docs/\u{2028}a.md",
    ] {
        nobody_takes(&bench, path);
    }
}

#[test]
fn case_c45_percent_signs_are_a_name_and_not_a_step() {
    let bench = Bench::new();
    assert!(
        bench
            .run::<ReadFile>(json!({ "path": "docs/%2e%2e/secrets/k" }))
            .unwrap_err()
            .starts_with("There is no")
    );
    bench.run::<WriteFile>(json!({ "path": "docs/%2e%2e/secrets/k", "content": "literal" })).unwrap();
    assert_eq!(bench.content("docs/%2e%2e/secrets/k"), "literal");
    for path in ["docs/.../k", "docs/…/k"] {
        let named = WorkspacePath::file(path);
        assert_eq!(named.is_ok(), path.contains('…'), "{path}");
    }
}

#[test]
fn case_c45_dots_and_doubled_slashes_mean_nothing() {
    let bench = Bench::new();
    for path in ["docs/a.md", "./docs/a.md", "docs/./a.md", "docs//a.md", ".//docs/.//a.md"] {
        assert_eq!(bench.run::<ReadFile>(json!({ "path": path })).unwrap(), "one\ntwo\nthree\n");
    }
    for path in [".", "./", "docs/..x", "docs/."] {
        assert_eq!(bench.run::<ListFiles>(json!({ "path": path })).is_ok(), !path.contains("..x"));
    }
}

#[test]
fn case_c45_long_paths_end_at_the_bound() {
    let long = |count: usize, length: usize| vec!["n".repeat(length); count].join("/");
    assert!(WorkspacePath::file(&long(1, 255)).is_ok());
    assert!(WorkspacePath::file(&long(128, 30)).is_ok());
    for path in [long(1, 256), long(129, 1), long(20, 250), "x".repeat(10_000_000)] {
        assert_eq!(WorkspacePath::file(&path), Err(PathError::TooLong));
    }
    let bench = Bench::new();
    let path = format!("{}/f.md", long(15, 200));
    bench.run::<WriteFile>(json!({ "path": path, "content": "deep" })).unwrap();
    assert_eq!(bench.run::<ReadFile>(json!({ "path": path })).unwrap(), "deep");
}

#[test]
fn case_c45_no_link_is_followed_whatever_it_points_to() {
    let bench = Bench::new();
    let secrets = bench.outer.path().join("secrets");
    symlink(&secrets, bench.at("out")).unwrap();
    symlink("../secrets", bench.at("up")).unwrap();
    symlink(secrets.join("k"), bench.at("k")).unwrap();
    symlink("a.md", bench.at("docs/inside.md")).unwrap();
    symlink("docs", bench.at("folder")).unwrap();
    symlink("nowhere", bench.at("dangling")).unwrap();
    symlink("loop", bench.at("loop")).unwrap();
    symlink(secrets.join("new"), bench.at("new.md")).unwrap();
    for path in [
        "out/k",
        "up/k",
        "k",
        "docs/inside.md",
        "folder/a.md",
        "dangling",
        "loop",
        "loop/x",
        "new.md",
        "out/new",
    ] {
        nobody_takes(&bench, path);
    }
    for path in ["out", "folder", "loop"] {
        assert!(bench.run::<ListFiles>(json!({ "path": path })).unwrap_err().contains("symbolic link"));
    }
    let listed = bench.run::<ListFiles>(json!({ "recursive": true })).unwrap();
    assert!(listed.contains("out (symbolic link, not followed)\n") && !listed.contains("out/k"));
    assert_eq!(
        bench.run::<SearchFiles>(json!({ "text": "the secret" })).unwrap(),
        "No line contains the text."
    );
}

#[test]
fn case_c45_a_folder_swapped_for_a_link_after_the_preview_is_refused() {
    let bench = Bench::new();
    let arguments = json!({ "path": "docs/a.md", "content": "new\n" });
    let promise = bench.promise::<WriteFile>(arguments.clone());
    let outside = bench.outer.path().join("docs");
    fs::rename(bench.at("docs"), &outside).unwrap();
    symlink(&outside, bench.at("docs")).unwrap();
    let refused = bench.run_as_previewed::<WriteFile>(arguments, Some(&promise)).unwrap_err();
    assert!(refused.contains("symbolic link"), "{refused}");
    assert_eq!(fs::read_to_string(outside.join("a.md")).unwrap(), "one\ntwo\nthree\n");
}

#[test]
fn case_c45_a_folder_swapped_during_the_call_leads_nowhere_else() {
    let bench = Bench::new();
    let visit = bench.workspace.visit();
    let place = visit.place(&WorkspacePath::file("docs/a.md").unwrap()).unwrap();
    let now = crate::precondition::present(&place).unwrap();
    fs::rename(bench.at("docs"), bench.at("moved")).unwrap();
    symlink(bench.outer.path().join("secrets"), bench.at("docs")).unwrap();
    let before = bench.everything();
    assert!(crate::change::put(&visit, &place, now.as_ref(), b"new").is_err());
    assert_eq!(bench.everything(), before);
    // The opened folder is still the one that was judged, wherever it is now.
    crate::change::remove(&visit, &place, &now.unwrap()).unwrap();
    assert!(!bench.at("moved/a.md").exists());
    assert!(bench.outer.path().join("secrets/k").exists());
}

#[test]
fn case_c45_a_file_swapped_for_a_link_during_the_call_is_left_alone() {
    let bench = Bench::new();
    let visit = bench.workspace.visit();
    let place = visit.place(&WorkspacePath::file("docs/a.md").unwrap()).unwrap();
    let now = crate::precondition::present(&place).unwrap();
    fs::remove_file(bench.at("docs/a.md")).unwrap();
    symlink(bench.outer.path().join("secrets/k"), bench.at("docs/a.md")).unwrap();
    let before = bench.everything();
    assert!(crate::change::put(&visit, &place, now.as_ref(), b"new").is_err());
    assert!(crate::change::remove(&visit, &place, &now.unwrap()).is_err());
    assert_eq!(bench.everything(), before);
}

#[test]
fn case_c45_a_folder_that_keeps_changing_into_a_link_never_leads_outside() {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    use std::sync::atomic::{AtomicBool, Ordering};

    let bench = Bench::new();
    let secrets = bench.outer.path().join("secrets");
    symlink(&secrets, bench.at("other")).unwrap();
    put(&bench.at("docs/k"), "harmless");
    let done = AtomicBool::new(false);
    let swap =
        || renameat_with(CWD, bench.at("docs"), CWD, bench.at("other"), RenameFlags::EXCHANGE).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                swap();
            }
        });
        for round in 0..400 {
            if let Ok(text) = bench.run::<ReadFile>(json!({ "path": "docs/k" })) {
                assert!(!text.contains("secret"));
            }
            let _maybe =
                bench.run::<WriteFile>(json!({ "path": "docs/k", "content": format!("harmless {round}") }));
            let _maybe = bench.run::<WriteFile>(json!({ "path": format!("docs/{round}/x"), "content": "" }));
            let _maybe = bench.run::<MoveFile>(json!({ "from": "docs/k", "to": "docs/moved" }));
            let _maybe = bench.run::<MoveFile>(json!({ "from": "docs/moved", "to": "docs/k" }));
            let _maybe = bench.run::<DeleteFile>(json!({ "path": "docs/moved" }));
            let found = bench.run::<SearchFiles>(json!({ "text": "the secret" }));
            assert!(!found.unwrap_or_default().contains("the secret"));
        }
        done.store(true, Ordering::Relaxed);
    });
    let names: Vec<_> = fs::read_dir(&secrets).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["k"]);
    assert_eq!(fs::read_to_string(secrets.join("k")).unwrap(), "the secret");
}

#[test]
fn what_is_no_regular_file_is_not_opened_and_hangs_nothing() {
    let bench = Bench::new();
    let pipe = bench.at("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RWXU).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(bench.at("socket")).unwrap();
    for path in ["pipe", "socket", "pipe/x"] {
        nobody_takes(&bench, path);
        assert!(bench.run::<DeleteFile>(json!({ "path": path })).is_err());
    }
    let listed = bench.run::<ListFiles>(json!({})).unwrap();
    assert!(listed.contains("pipe (not a file)\n") && listed.contains("socket (not a file)\n"));
    assert!(bench.run::<SearchFiles>(json!({ "text": "one" })).unwrap().starts_with("docs/a.md:1: one"));
}

#[test]
fn the_workspace_stays_the_folder_that_was_opened() {
    let bench = Bench::new();
    let elsewhere = bench.outer.path().join("elsewhere");
    fs::rename(bench.root(), &elsewhere).unwrap();
    put(&bench.at("docs/a.md"), "an impostor");
    assert_eq!(bench.run::<ReadFile>(json!({ "path": "docs/a.md" })).unwrap(), "one\ntwo\nthree\n");
    bench.run::<WriteFile>(json!({ "path": "docs/a.md", "content": "mine" })).unwrap();
    assert_eq!(bench.content("docs/a.md"), "an impostor");
    // The state folder is still none of the model's business at its new place.
    assert!(bench.run::<ReadFile>(json!({ "path": ".countersign/key" })).is_err());
}

#[test]
fn a_root_behind_a_link_is_opened_once_and_anything_else_is_refused() {
    let bench = Bench::new();
    let link = bench.outer.path().join("link");
    symlink(bench.root(), &link).unwrap();
    let workspace = super::open(&link);
    let read = |path: &str| crate::tool::run::<ReadFile>(&workspace, json!({ "path": path }), None);
    assert!(read("docs/a.md").is_ok());
    assert!(read(".countersign/key").is_err());
    for root in ["nowhere", "secrets/k"] {
        assert!(Workspace::open(&bench.outer.path().join(root), &[], &[]).is_err());
    }
}

#[test]
fn wrong_arguments_are_an_answer_and_no_panic() {
    let bench = Bench::new();
    for arguments in [json!({}), json!({ "path": 1 }), json!({ "path": "a", "extra": true }), Value::Null] {
        assert!(bench.run::<ReadFile>(arguments.clone()).is_err());
        assert!(bench.preview::<WriteFile>(arguments).is_err());
    }
}
