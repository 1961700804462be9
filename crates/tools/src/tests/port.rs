//! The file tools as the runtime sees them: through the port, with nothing but what is public.

use std::fs;
use std::sync::Arc;

use crate::{Workspace, file_tools};
use countersign::testing::{call_context, preview_context};
use countersign::{Arguments, Subject, Tool, ToolFailure};
use tempfile::TempDir;

fn tools() -> (TempDir, Vec<Arc<dyn Tool>>) {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a.md"), "one\n").unwrap();
    let workspace =
        Workspace::open(folder.path(), &[".countersign".into()], &["countersign.toml".into()]).unwrap();
    (folder, file_tools(&workspace).unwrap())
}

fn named<'t>(tools: &'t [Arc<dyn Tool>], name: &str) -> &'t dyn Tool {
    tools.iter().find(|tool| tool.spec().name.as_str() == name).unwrap().as_ref()
}

fn arguments(text: &str) -> Arguments {
    Arguments::read(Some(text)).unwrap()
}

#[tokio::test]
async fn rule_a7_what_was_previewed_is_done_once_and_not_when_the_file_changed() {
    let (folder, tools) = tools();
    let alice = Subject::parse("alice").unwrap();
    let edit = named(&tools, "edit_file");
    let wanted = arguments(r#"{"path":"a.md","find":"one","replace":"two"}"#);
    let preview = edit.preview(&wanted, &preview_context(&alice)).await.unwrap().unwrap();
    assert_eq!(preview.lines.last().unwrap(), "+two");
    let cx = call_context(&alice, preview.precondition);

    fs::write(folder.path().join("a.md"), "one and more\n").unwrap();
    let error = edit.call(&wanted, &cx).await.unwrap_err();
    assert_eq!(error.to_string(), "`a.md` was changed meanwhile; nothing was done.");

    fs::write(folder.path().join("a.md"), "one\n").unwrap();
    assert_eq!(edit.call(&wanted, &cx).await.unwrap().content.kept(), "Edited `a.md` (4 bytes).");
    assert_eq!(edit.call(&wanted, &cx).await.unwrap().content.kept(), "`a.md` already has this change.");
    assert_eq!(fs::read_to_string(folder.path().join("a.md")).unwrap(), "two\n");
}

#[tokio::test]
async fn reads_have_no_preview_and_failures_are_answers() {
    let (_folder, tools) = tools();
    let alice = Subject::parse("alice").unwrap();
    let read = named(&tools, "read_file");
    assert!(read.preview(&arguments(r#"{"path":"a.md"}"#), &preview_context(&alice)).await.is_none());
    let cx = call_context(&alice, None);
    assert_eq!(read.call(&arguments(r#"{"path":"a.md"}"#), &cx).await.unwrap().content.kept(), "one\n");
    for path in ["../x", "absent", ".countersign/key"] {
        let answer = read.call(&arguments(&format!(r#"{{"path":"{path}"}}"#)), &cx).await;
        assert!(matches!(answer.unwrap_err().failure(), ToolFailure::Answered(_)), "{path}");
    }
}
