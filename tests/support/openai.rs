//! OpenAI's own client for Python, unmodified, in an environment of its own: made when the first test asks for it, kept
//! below `target`, and made anew when `requirements.txt` changes.

use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use serde_json::Value;

use super::serve::{Client, Serve};

/// Where the client's script and requirements are.
fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/openai")
}

/// Runs the script as this person against this server, and gives back what it saw.
pub(crate) fn drive(serve: &Serve, client: &Client, how: &str) -> Value {
    let mut command = Command::new(python());
    command.arg(scripts().join("drive.py")).arg(how).env_clear().env("PATH", "/usr/bin:/bin");
    command.env("OPENAI_BASE_URL", format!("http://{}/v1", serve.address()));
    command.env("OPENAI_API_KEY", client.token());
    let out = run(&mut command);
    serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}"))
}

/// The Python that has the client.
fn python() -> &'static Path {
    static PYTHON: OnceLock<PathBuf> = OnceLock::new();
    PYTHON.get_or_init(|| {
        let requirements = scripts().join("requirements.txt");
        let mut hasher = DefaultHasher::new();
        fs::read(&requirements).unwrap().hash(&mut hasher);
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let finished = folder.join(format!("openai-{:016x}", hasher.finish()));
        let python = finished.join("bin/python");
        let works = || Command::new(&python).args(["-c", "import openai"]).output();
        if works().is_ok_and(|done| done.status.success()) {
            return python;
        }
        // Made beside its place and moved there whole: what was cut short is never taken for finished.
        let made = tempfile::Builder::new().prefix("openai-").tempdir_in(folder).unwrap();
        run(Command::new("python3").args(["-m", "venv"]).arg(made.path()));
        let mut pip = Command::new(made.path().join("bin/python"));
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--require-hashes"]);
        run(pip.args(["--only-binary", ":all:", "--requirement"]).arg(&requirements));
        // One that does not work any more, because the machine's Python has changed, makes room.
        drop(fs::remove_dir_all(&finished));
        fs::rename(made.path(), &finished).unwrap();
        drop(made.keep());
        python
    })
}

fn run(command: &mut Command) -> String {
    let done = command.output().unwrap_or_else(|error| {
        panic!("{command:?}: {error}; these tests need Python with venv: run scripts/set-up tests")
    });
    assert!(
        done.status.success(),
        "{command:?}: {}{}",
        String::from_utf8_lossy(&done.stdout),
        String::from_utf8_lossy(&done.stderr)
    );
    String::from_utf8(done.stdout).unwrap()
}
