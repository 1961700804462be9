//! What is promised, tried from the side of the model: arguments in, sentences and files out.

mod confinement;
mod port;
mod protection;
mod reading;
mod specs;
mod status;
mod writing;

use std::fs;
use std::path::{Path, PathBuf};

use countersign::ToolPreview;
use serde_json::Value;
use tempfile::TempDir;

use crate::Workspace;
use crate::tool::{FileWork, preview, run};

/// A workspace in a folder of its own, with a state folder, a configuration and skills in it, and secrets beside it.
struct Bench {
    outer: TempDir,
    workspace: Workspace,
}

impl Bench {
    fn new() -> Self {
        let outer = tempfile::tempdir().unwrap();
        let root = outer.path().join("ws");
        for (path, content) in [
            ("ws/docs/a.md", "one\ntwo\nthree\n"),
            ("ws/.countersign/countersign.db", "the record"),
            ("ws/.countersign/key", "the key"),
            ("ws/countersign.toml", "workspace = \".\"\n"),
            ("ws/skills/editor/SKILL.md", "Edit well.\n"),
            ("secrets/k", "the secret"),
        ] {
            put(&outer.path().join(path), content);
        }
        let workspace = open(&root);
        Self { outer, workspace }
    }

    fn root(&self) -> PathBuf {
        self.outer.path().join("ws")
    }

    fn at(&self, path: &str) -> PathBuf {
        self.root().join(path)
    }

    fn content(&self, path: &str) -> String {
        fs::read_to_string(self.at(path)).unwrap()
    }

    /// One call without a preview.
    fn run<W: FileWork>(&self, arguments: Value) -> Result<String, String> {
        self.run_as_previewed::<W>(arguments, None)
    }

    fn run_as_previewed<W: FileWork>(
        &self,
        arguments: Value,
        promise: Option<&Value>,
    ) -> Result<String, String> {
        let answer = run::<W>(&self.workspace, arguments, promise).map_err(|failure| failure.to_string());
        let said = answer.as_ref().unwrap_or_else(|sentence| sentence);
        assert!(!said.contains(self.outer.path().to_str().unwrap()), "names a place of the machine: {said}");
        answer
    }

    fn preview<W: FileWork>(&self, arguments: Value) -> Result<ToolPreview, String> {
        preview::<W>(&self.workspace, arguments).expect("a writer").map_err(|failure| failure.to_string())
    }

    fn promise<W: FileWork>(&self, arguments: Value) -> Value {
        self.preview::<W>(arguments).unwrap().precondition.unwrap()
    }

    /// A preview that fails, or shows why nothing will be done and promises just that.
    fn preview_refuses<W: FileWork>(&self, arguments: Value) -> Result<String, String> {
        let shown = self.preview::<W>(arguments.clone())?;
        let promise = shown.precondition.expect("whoever shows something promises something");
        if promise["changes"].is_null() {
            assert_eq!(shown.lines[0], "no change: this call will do nothing");
            return self.run_as_previewed::<W>(arguments, Some(&promise));
        }
        Ok(shown.lines.join("\n"))
    }

    /// Every path below the outer folder with what is there, to show that nothing changed.
    fn everything(&self) -> Vec<(PathBuf, String)> {
        let mut found = Vec::new();
        collect(self.outer.path(), &mut found);
        found.sort();
        found
    }
}

fn open(root: &Path) -> Workspace {
    Workspace::open(root, &[".countersign".into()], &["countersign.toml".into(), "skills".into()]).unwrap()
}

fn put(path: &Path, content: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

fn collect(folder: &Path, found: &mut Vec<(PathBuf, String)>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let kind = fs::symlink_metadata(&path).unwrap().file_type();
        if kind.is_dir() {
            found.push((path.clone(), "/".to_owned()));
            collect(&path, found);
        } else if kind.is_file() {
            let content = String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned();
            found.push((path, content));
        } else {
            found.push((path, format!("{kind:?}")));
        }
    }
}
