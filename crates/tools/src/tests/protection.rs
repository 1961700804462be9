//! S2: the state folder does not exist for the tools; configuration and skills are read-only.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use serde_json::json;

use super::{Bench, put};
use crate::delete_file::DeleteFile;
use crate::edit_file::EditFile;
use crate::list_files::ListFiles;
use crate::move_file::MoveFile;
use crate::read_file::ReadFile;
use crate::search_files::SearchFiles;
use crate::write_file::WriteFile;
use crate::{OpenError, Workspace};

/// Tries to change one path in every way; all must refuse, and nothing may change.
fn nobody_changes(bench: &Bench, path: &str) {
    let before = bench.everything();
    for refusal in [
        bench.run::<WriteFile>(json!({ "path": path, "content": "mine" })),
        bench.run::<EditFile>(json!({ "path": path, "find": "the", "replace": "my" })),
        bench.run::<MoveFile>(json!({ "from": path, "to": "taken.md" })),
        bench.run::<MoveFile>(json!({ "from": "docs/a.md", "to": path })),
        bench.run::<DeleteFile>(json!({ "path": path })),
        bench.preview_refuses::<WriteFile>(json!({ "path": path, "content": "mine" })),
        bench.preview_refuses::<DeleteFile>(json!({ "path": path })),
        bench.preview_refuses::<MoveFile>(json!({ "from": path, "to": "taken.md" })),
    ] {
        assert!(refusal.is_err(), "{path:?}: {refusal:?}");
    }
    assert_eq!(bench.everything(), before, "{path:?}");
}

/// A path that does not exist for the tools: not to be read, listed or searched either.
fn is_not_there(bench: &Bench, path: &str) {
    nobody_changes(bench, path);
    let answer = bench.run::<ReadFile>(json!({ "path": path })).unwrap_err();
    let absent = bench.run::<ReadFile>(json!({ "path": "docs/absent" })).unwrap_err();
    assert_eq!(
        answer.split('`').next(),
        absent.split('`').next(),
        "{path:?} is told from what is absent: {answer}"
    );
    for reading in [
        bench.run::<ListFiles>(json!({ "path": path })),
        bench.run::<SearchFiles>(json!({ "path": path, "text": "the" })),
    ] {
        assert!(reading.is_err(), "{path:?}: {reading:?}");
    }
}

#[test]
fn rule_s2_the_state_folder_does_not_exist_in_any_spelling() {
    let bench = Bench::new();
    for folder in [
        ".countersign",
        "./.countersign",
        ".//.countersign",
        "docs/../.countersign",
        ".COUNTERSIGN",
        ".Countersign",
        ".counterſign",
        ".counter\u{ad}sign",
        ".counter\u{200b}sign",
        ".countersign/.",
        ".countersign.",
        ".countersign ",
        ".countersign//",
        ".countersign\\",
    ] {
        let file = format!("{folder}/key");
        nobody_changes(&bench, folder);
        nobody_changes(&bench, &file);
        nobody_changes(&bench, &format!("{folder}/new"));
        for reading in [
            bench.run::<ReadFile>(json!({ "path": file })),
            bench.run::<ListFiles>(json!({ "path": folder })),
            bench.run::<SearchFiles>(json!({ "path": folder, "text": "the" })),
        ] {
            assert!(reading.is_err(), "{folder:?}: {reading:?}");
        }
    }
    for path in [".countersign", ".countersign/key", ".countersign/key/x", ".countersign/absent"] {
        is_not_there(&bench, path);
    }
}

#[test]
fn rule_s2_the_state_folder_is_neither_listed_nor_searched() {
    let bench = Bench::new();
    let listed = bench.run::<ListFiles>(json!({ "recursive": true })).unwrap();
    assert_eq!(
        listed.lines().collect::<Vec<_>>(),
        ["countersign.toml", "docs/", "docs/a.md", "skills/", "skills/editor/", "skills/editor/SKILL.md"]
    );
    assert_eq!(bench.run::<SearchFiles>(json!({ "text": "the key" })).unwrap(), "No line contains the text.");
}

#[test]
fn rule_s2_other_names_for_the_state_do_not_exist_either() {
    let bench = Bench::new();
    fs::hard_link(bench.at(".countersign/countersign.db"), bench.at("docs/db")).unwrap();
    fs::hard_link(bench.at(".countersign/key"), bench.at("notes.md")).unwrap();
    for path in ["docs/db", "notes.md"] {
        is_not_there(&bench, path);
    }
    let listed = bench.run::<ListFiles>(json!({ "recursive": true })).unwrap();
    assert!(!listed.contains("docs/db") && !listed.contains("notes.md"), "{listed}");
    assert_eq!(bench.run::<SearchFiles>(json!({ "text": "the" })).unwrap(), "No line contains the text.");
    // A link is not followed, so it says nothing of what it points to.
    symlink(".countersign", bench.at("alias")).unwrap();
    symlink("../.countersign/key", bench.at("docs/alias")).unwrap();
    for path in ["alias", "alias/key", "docs/alias"] {
        nobody_changes(&bench, path);
        assert!(bench.run::<ReadFile>(json!({ "path": path })).unwrap_err().contains("symbolic link"));
    }
    // Other files may have two names.
    fs::hard_link(bench.at("docs/a.md"), bench.at("docs/b.md")).unwrap();
    assert!(bench.run::<ReadFile>(json!({ "path": "docs/b.md" })).is_ok());
}

#[test]
fn rule_s2_every_other_state_folder_below_does_not_exist_either() {
    let bench = Bench::new();
    put(&bench.at("proj/.countersign/key"), "the other key");
    put(&bench.at("proj/.countersign/deep/er/key"), "the other key");
    put(&bench.at("a/b/c/.CounterSign/key"), "the other key");
    put(&bench.at("docs/.countersign"), "the other key");
    put(&bench.at("docs/.countersign-notes"), "mine\n");
    for path in [
        "proj/.countersign",
        "proj/.countersign/key",
        "proj/.countersign/key/x",
        "proj/.countersign/new",
        "proj/.countersign/deep",
        "proj/.countersign/deep/er/key",
        "proj/.Countersign/key",
        "proj/.COUNTERSIGN/new/file",
        "proj/.counter\u{17f}ign/key",
        "proj/.counter\u{ad}sign/key",
        "proj/.counter\u{200b}sign/key",
        "proj/.counter\u{fe0f}sign/key",
        "proj/.countersign\u{e0001}/key",
        "a/b/c/.CounterSign",
        "a/b/c/.CounterSign/key",
        "a/b/c/.countersign/key",
        "docs/.countersign",
        "docs/.countersign/x",
        // Where there is none yet, none can be planted.
        "a/.countersign",
        "a/.countersign/key",
        "nowhere/yet/.Countersign/key",
        ".countersign/.countersign/key",
    ] {
        is_not_there(&bench, path);
    }
    let listed = bench.run::<ListFiles>(json!({ "recursive": true })).unwrap();
    assert_eq!(
        listed.lines().collect::<Vec<_>>(),
        [
            "a/",
            "a/b/",
            "a/b/c/",
            "countersign.toml",
            "docs/",
            "docs/.countersign-notes",
            "docs/a.md",
            "proj/",
            "skills/",
            "skills/editor/",
            "skills/editor/SKILL.md"
        ]
    );
    assert_eq!(bench.run::<ListFiles>(json!({ "path": "proj" })).unwrap(), "The folder `proj` is empty.");
    for path in [".", "proj", "a", "docs"] {
        let found = bench.run::<SearchFiles>(json!({ "text": "key", "path": path })).unwrap();
        assert_eq!(found, "No line contains the text.");
    }
    assert_eq!(bench.run::<ReadFile>(json!({ "path": "docs/.countersign-notes" })).unwrap(), "mine\n");
}

#[test]
fn rule_s2_another_state_folder_does_not_exist_under_another_name_of_its_folder() {
    // Stands for a file system that has a second name for it, as some have a short one.
    let bench = Bench::new();
    put(&bench.at("proj/COUNTE~1/key"), "the other key");
    symlink("COUNTE~1", bench.at("proj/.countersign")).unwrap();
    for path in ["proj/.countersign/key", "proj/COUNTE~1", "proj/COUNTE~1/key", "proj/COUNTE~1/new"] {
        is_not_there(&bench, path);
    }
    assert_eq!(bench.run::<ListFiles>(json!({ "path": "proj" })).unwrap(), "The folder `proj` is empty.");
}

#[test]
fn rule_s2_a_workspace_in_a_state_folder_of_that_name_is_used_and_hides_those_below() {
    let bench = Bench::new();
    put(&bench.at(".countersign/tour/notice.md"), "open\n");
    put(&bench.at(".countersign/tour/.countersign/key"), "the other key");
    let workspace = Workspace::open(&bench.at(".countersign/tour"), &[], &[]).unwrap();
    let bench = Bench { workspace, ..bench };
    assert_eq!(bench.run::<ListFiles>(json!({ "recursive": true })).unwrap(), "notice.md\n");
    bench.run::<WriteFile>(json!({ "path": "notice.md", "content": "closed" })).unwrap();
    assert_eq!(bench.content(".countersign/tour/notice.md"), "closed");
    let key = bench.run::<ReadFile>(json!({ "path": ".countersign/key" }));
    assert_eq!(key.unwrap_err(), "There is no file or folder `.countersign/key`.");
    assert!(bench.run::<DeleteFile>(json!({ "path": ".countersign/key" })).is_err());
    assert_eq!(bench.content(".countersign/tour/.countersign/key"), "the other key");
}

#[test]
fn rule_s2_a_state_folder_that_is_a_link_hides_both_ends() {
    let bench = Bench::new();
    fs::rename(bench.at(".countersign"), bench.at("var")).unwrap();
    symlink("var", bench.at(".countersign")).unwrap();
    let bench = Bench { workspace: super::open(&bench.root()), ..bench };
    for path in [".countersign", ".countersign/key", "var", "var/key", "VAR/key"] {
        is_not_there(&bench, path);
    }
    assert!(!bench.run::<ListFiles>(json!({})).unwrap().contains("var"));
}

#[test]
fn rule_s2_a_state_folder_that_comes_later_is_protected_already() {
    let bench = Bench::new();
    fs::remove_dir_all(bench.at(".countersign")).unwrap();
    let bench = Bench { workspace: super::open(&bench.root()), ..bench };
    nobody_changes(&bench, ".countersign/key");
    nobody_changes(&bench, ".countersign");
    nobody_changes(&bench, ".Countersign/key");
    put(&bench.at(".countersign/key"), "a new key");
    is_not_there(&bench, ".countersign/key");
    fs::hard_link(bench.at(".countersign/key"), bench.at("other")).unwrap();
    is_not_there(&bench, "other");
}

#[test]
fn rule_s2_a_state_folder_that_is_moved_stays_hidden() {
    let bench = Bench::new();
    let visit = bench.workspace.visit();
    fs::rename(bench.at(".countersign"), bench.at("docs/old")).unwrap();
    let path = crate::path::WorkspacePath::folder("docs/old").unwrap();
    assert!(visit.folder(&path).is_err());
    for path in ["docs/old", "docs/old/key"] {
        is_not_there(&bench, path);
    }
    fs::hard_link(bench.at("docs/old/key"), bench.at("notes.md")).unwrap();
    is_not_there(&bench, "notes.md");
}

#[test]
fn rule_s2_no_file_takes_the_place_of_a_folder_on_the_way_to_the_state() {
    let bench = Bench::new();
    let workspace =
        Workspace::open(&bench.root(), &["var/lib/state".into()], &["etc/conf.toml".into()]).unwrap();
    let bench = Bench { workspace, ..bench };
    for path in ["var", "VAR", "var/lib", "etc"] {
        nobody_changes(&bench, path);
    }
    bench.run::<WriteFile>(json!({ "path": "var/lib/other", "content": "" })).unwrap();
}

#[test]
fn rule_s2_a_state_file_hides_what_the_database_keeps_beside_it() {
    let bench = Bench::new();
    for name in ["app.db", "app.db-wal", "app.db-shm", "app.db-journal"] {
        put(&bench.at(&format!("data/{name}")), "the record");
    }
    put(&bench.at("data/app.db-notes"), "mine");
    let workspace = Workspace::open(&bench.root(), &[bench.at("data/app.db")], &[]).unwrap();
    let bench = Bench { workspace, ..bench };
    for name in ["app.db", "app.db-wal", "app.db-shm", "app.db-journal", "APP.DB", "app.db/x"] {
        is_not_there(&bench, &format!("data/{name}"));
    }
    fs::hard_link(bench.at("data/app.db-wal"), bench.at("wal")).unwrap();
    is_not_there(&bench, "wal");
    assert_eq!(bench.run::<ListFiles>(json!({ "path": "data" })).unwrap(), "data/app.db-notes\n");
}

#[test]
fn rule_s2_a_state_folder_that_cannot_be_read_hides_every_second_name() {
    let bench = Bench::new();
    for number in 0..10_001 {
        fs::write(bench.at(&format!(".countersign/{number}")), "").unwrap();
    }
    fs::hard_link(bench.at(".countersign/key"), bench.at("notes.md")).unwrap();
    is_not_there(&bench, "notes.md");
    assert!(bench.run::<ReadFile>(json!({ "path": "docs/a.md" })).is_ok());
}

#[test]
fn rule_s2_configuration_and_skills_are_read_and_never_changed() {
    let bench = Bench::new();
    for path in [
        "countersign.toml",
        "./countersign.toml",
        "COUNTERSIGN.TOML",
        "countersign.toml/x",
        "skills",
        "skills/new",
        "skills/new/SKILL.md",
        "skills/editor/SKILL.md",
        "Skills/editor/SKILL.md",
        "skills/editor/deep/er/x.md",
    ] {
        nobody_changes(&bench, path);
    }
    assert_eq!(bench.run::<ReadFile>(json!({ "path": "skills/editor/SKILL.md" })).unwrap(), "Edit well.\n");
    assert!(
        bench.run::<SearchFiles>(json!({ "text": "workspace" })).unwrap().starts_with("countersign.toml:1:")
    );
    let refused = bench.run::<WriteFile>(json!({ "path": "countersign.toml", "content": "" })).unwrap_err();
    assert_eq!(refused, "`countersign.toml` may be read but not changed.");
}

#[test]
fn rule_s2_a_configuration_that_does_not_exist_cannot_be_planted() {
    let bench = Bench::new();
    fs::remove_file(bench.at("countersign.toml")).unwrap();
    fs::remove_dir_all(bench.at("skills")).unwrap();
    let bench = Bench { workspace: super::open(&bench.root()), ..bench };
    for path in ["countersign.toml", "countersign.toml/x", "skills", "skills/x/SKILL.md", "SKILLS/x"] {
        nobody_changes(&bench, path);
    }
}

#[test]
fn rule_s2_protected_places_inside_folders_go_nowhere_with_their_folder() {
    let bench = Bench::new();
    put(&bench.at("app/var/state/db"), "the record");
    put(&bench.at("app/etc/conf.toml"), "x = 1\n");
    let workspace =
        Workspace::open(&bench.root(), &["app/var/state".into()], &[PathBuf::from("app/etc/conf.toml")])
            .unwrap();
    let bench = Bench { workspace, ..bench };
    for folder in ["app", "app/var", "app/etc"] {
        nobody_changes(&bench, folder);
    }
    is_not_there(&bench, "app/var/state/db");
    nobody_changes(&bench, "app/etc/conf.toml");
    bench.run::<WriteFile>(json!({ "path": "app/etc/other.toml", "content": "y" })).unwrap();
    bench.run::<WriteFile>(json!({ "path": "app/var/other", "content": "y" })).unwrap();
}

#[test]
fn rule_s2_a_workspace_in_the_state_folder_is_refused() {
    let bench = Bench::new();
    for (root, state) in [(".countersign", ".countersign"), (".countersign", "."), (".", ".")] {
        let opened = Workspace::open(&bench.at(root), &[bench.at(state)], &[]);
        assert!(matches!(opened, Err(OpenError::InsideState { .. })), "{root} in {state}");
    }
    let unlocated = Workspace::open(&bench.root(), &["absent/../x".into()], &[]);
    assert!(matches!(unlocated, Err(OpenError::Protected { .. })));
}

#[test]
fn rule_s2_a_workspace_in_a_read_only_folder_is_read_only() {
    let bench = Bench::new();
    let workspace = Workspace::open(&bench.at("skills"), &[], &[bench.root()]).unwrap();
    let bench = Bench { workspace, ..bench };
    nobody_changes(&bench, "editor/SKILL.md");
    nobody_changes(&bench, "new.md");
    assert!(bench.run::<ReadFile>(json!({ "path": "editor/SKILL.md" })).is_ok());
}

#[test]
fn rule_s2_state_outside_the_workspace_is_known_by_what_it_is() {
    let bench = Bench::new();
    let secret = bench.outer.path().join("secrets/k");
    fs::hard_link(&secret, bench.at("docs/k")).unwrap();
    let workspace = Workspace::open(&bench.root(), &[secret], &[]).unwrap();
    let bench = Bench { workspace, ..bench };
    is_not_there(&bench, "docs/k");
}
