//! A folder to work in, a server of models that plays a script, and a terminal.

pub(crate) mod chance;
pub(crate) mod collector;
pub(crate) mod model;
pub(crate) mod openai;
pub(crate) mod page;
#[path = "../crates/store/tests/postgres/server.rs"]
pub(crate) mod postgres;
pub(crate) mod pty;
pub(crate) mod receiver;
pub(crate) mod serve;
pub(crate) mod tool;
pub(crate) mod witness;

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

/// How often something is looked at before a test gives up, and how long between two looks.
pub(crate) const LOOKS_MAX: u32 = 600;
pub(crate) const LOOK: Duration = Duration::from_millis(50);

/// A working folder with the program in it.
pub(crate) struct Folder {
    folder: TempDir,
    /// The address of a PostgreSQL database, where its runs are not kept in a file.
    database: Option<String>,
}

/// What a command came to.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) exit: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Folder {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), database: None }
    }

    /// The same with its runs in a PostgreSQL database of its own.
    pub(crate) fn on_postgres() -> Self {
        let server = postgres::server();
        Self { database: Some(server.address(&server.database(None))), ..Self::new() }
    }

    /// Asks its PostgreSQL database itself, past the program.
    pub(crate) fn ask_postgres(&self, statements: &str) -> String {
        let address = self.database.as_deref().unwrap();
        let name = address.split_once("@/").and_then(|(_, rest)| rest.split_once('?')).unwrap().0;
        postgres::server().ask(name, statements)
    }

    /// Changes its PostgreSQL database behind the program's back.
    pub(crate) fn change_database(&self, statements: &str) {
        let address = self.database.as_deref().unwrap();
        let name = address.split(['/', '?']).nth(3).unwrap();
        postgres::server().ask(name, statements);
    }

    /// One of each, for what must not differ.
    pub(crate) fn of_each_kind() -> [Self; 2] {
        [Self::new(), Self::on_postgres()]
    }

    pub(crate) fn path(&self, below: &str) -> PathBuf {
        self.folder.path().join(below)
    }

    pub(crate) fn write(&self, file: &str, text: &str) {
        let file = self.path(file);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text).unwrap();
    }

    pub(crate) fn text(&self, file: &str) -> String {
        std::fs::read_to_string(self.path(file)).unwrap()
    }

    /// The program, with nothing of this machine's environment but what a program needs.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_countersign"));
        command.args(arguments).current_dir(self.folder.path()).env_clear();
        command.env("PATH", "/usr/bin:/bin").env("HOME", self.folder.path()).env("USER", "ann");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Done {
        self.command(arguments).output().unwrap().into()
    }

    /// The one JSON value that a command prints.
    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        let done = self.run(arguments);
        serde_json::from_str(&done.out).unwrap_or_else(|error| panic!("{error}: {done:?}"))
    }

    /// The one question that is open, as `pending show --json` gives it.
    pub(crate) fn open(&self) -> Value {
        let list = self.json(&["pending", "list", "--json"]);
        let items = list["items"].as_array().unwrap();
        assert_eq!(items.len(), 1, "{list}");
        self.json(&["pending", "show", text(&items[0]["id"]), "--json"])
    }

    /// Decides the open question with `verb`.
    pub(crate) fn decide(&self, verb: &str, more: &[&str]) -> Done {
        let open = self.open();
        let mut arguments = vec![verb, text(&open["id"]), "--digest", text(&open["digest"])];
        arguments.extend(more);
        self.run(&arguments)
    }

    /// The only run, or the newest.
    pub(crate) fn newest_run(&self) -> Value {
        self.json(&["runs", "list", "--json"])["items"][0].clone()
    }

    pub(crate) fn events(&self, run: &str) -> Vec<Value> {
        self.json(&["runs", "events", run, "--json"])["items"].as_array().unwrap().clone()
    }

    /// A configuration with one agent on a scripted server.
    pub(crate) fn configure(&self, url: &str, more: &str) {
        self.write(
            "countersign.toml",
            &format!(
                "{}workspace = \".\"\n\n[providers.stub]\nkind = \"openai\"\nbase_url = \"{url}\"\nzone = \"local\"\n\n\
                 [agents.default]\nmodels = [\"stub/scripted\"]\n{more}",
                self.database.iter().map(|address| format!("database = \"{address}\"\n")).collect::<String>()
            ),
        );
    }
}

/// A declaration of one tool.
pub(crate) fn declared(name: &str, how: &str, effect: &str, more: &str) -> String {
    format!(
        "\n[[tools]]\nname = \"{name}\"\ngroup = \"content\"\neffect = \"{effect}\"\n{how}\n{more}\n\
         parameters = {{ type = \"object\", properties = {{ id = {{ type = \"integer\" }} }} }}\n"
    )
}

impl Folder {
    /// Adds to the end of the configuration.
    pub(crate) fn configure_more(&self, more: &str) {
        self.write("countersign.toml", &format!("{}\n{more}", self.text("countersign.toml")));
    }
}

impl From<Output> for Done {
    fn from(output: Output) -> Self {
        Self {
            exit: output.status.code().unwrap_or(-1),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

impl Done {
    pub(crate) fn expect(self, exit: i32) -> Self {
        assert_eq!(self.exit, exit, "{self:?}");
        self
    }

    /// The one line on stderr that says what went wrong.
    pub(crate) fn one_sentence(&self) -> &str {
        let lines: Vec<&str> = self.err.lines().collect();
        let [line] = lines[..] else { panic!("not one line: {self:?}") };
        assert!(line.starts_with("error: ") || line.starts_with("refused: "), "{line}");
        for word in ["panicked", "backtrace", "Error {", "Some("] {
            assert!(!line.contains(word), "{line}");
        }
        line
    }
}

/// Looks until there is something to see.
pub(crate) fn until<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    until_at_most(LOOKS_MAX, what, look)
}

/// The same for a look that takes its time.
pub(crate) fn until_at_most<T>(looks: u32, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    for _ in 0..looks {
        if let Some(seen) = look() {
            return seen;
        }
        std::thread::sleep(LOOK);
    }
    panic!("never seen: {what}");
}

pub(crate) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}"))
}

/// The kinds of these events, in order.
pub(crate) fn kinds(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| text(&event["kind"])).collect()
}
