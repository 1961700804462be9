//! The documentation is true: what its pages show is run, and what they print is what comes.
//!
//! Every page is read here, from its own file. How a block is tried stands in `support/page.rs`.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

use crate::support::model::{Server, calls, says};
use crate::support::page::{self, Block, Kind, Names, blocks, files, text_of};
use crate::support::tool::{Comes, ToolServer};
use crate::support::{Folder, declared, text};

/// The pages that a reader types from, one shell each.
const TYPED: [&str; 3] = ["README.md", "docs/deployment.md", "docs/operations.md"];
/// The page that says what is seen from outside.
const CONTRACT: &str = "docs/contract.md";
/// Where the examples in Rust are compiled and run.
const LIBRARY: &str = "crates/runtime/tests/library.rs";

/// Keys of the contract's configuration that this build refuses as unknown. Whoever brings one takes it out here.
const KEYS_TO_COME: [&str; 2] = ["agents.default.stream", "mcp"];
/// Commands of the contract that this build does not have. Whoever brings one takes it out here.
const COMMANDS_TO_COME: [&str; 1] = ["mcp"];

#[test]
fn every_block_of_every_page_is_tried_or_says_why_not() {
    for page in files("", ".md") {
        for block in blocks(&page) {
            let tried = match block.kind {
                Kind::Text | Kind::NotRun(_) => true,
                Kind::Console(_) => TYPED.contains(&page.as_str()),
                Kind::Toml | Kind::Rust => page == CONTRACT || TYPED.contains(&page.as_str()),
                Kind::Json => page == CONTRACT,
            };
            assert!(tried, "{}: nothing here tries such a block of this page", block.place);
        }
        let text = text_of(&page);
        let lines: Vec<&str> = text.lines().collect();
        let indented = lines.windows(2).position(|pair| pair[0].is_empty() && pair[1].starts_with("    "));
        assert_eq!(indented, None, "{page}: an indented block says nothing of what it is; fence it");
    }
}

#[test]
fn every_example_in_the_documentation_of_a_library_is_a_test_of_it() {
    for file in files("crates", ".rs").iter().filter(|file| file.contains("/src/")) {
        let source = text_of(file);
        let said: Vec<&str> = source
            .lines()
            .map(|line| {
                let line = line.trim_start();
                line.strip_prefix("//!").or_else(|| line.strip_prefix("///")).unwrap_or_default()
            })
            .collect();
        for (info, line, _) in page::fences(&said.join("\n")) {
            // What must not compile is tried as well.
            let is_tried = info.is_empty() || info.split(',').next() == Some("compile_fail");
            assert!(is_tried, "{file}:{line}: an example of a library is compiled and run");
            assert!(!file.starts_with("crates/server/"), "{file}:{line}: nothing runs examples of a program");
        }
    }
}

/// Somebody who types what a page says, from its beginning to its end, in one shell.
struct Reader {
    folder: Folder,
    names: Names,
    shell: Child,
    keyboard: ChildStdin,
    screen: BufReader<ChildStdout>,
    /// Addresses and places of the page, and what is there instead.
    instead: Vec<(&'static str, String)>,
}

/// What stands on a line of its own after each command, with its exit status.
const END: char = '\u{1e}';

impl Reader {
    fn new(instead: Vec<(&'static str, String)>) -> Self {
        let folder = Folder::new();
        let program = env!("CARGO_BIN_EXE_countersign");
        std::os::unix::fs::symlink(program, folder.path("countersign")).unwrap();
        let mut shell = Command::new("bash");
        shell.args(["--norc", "--noprofile"]).current_dir(folder.path("")).env_clear();
        shell.env("PATH", format!("{}:/usr/bin:/bin", folder.path("").display()));
        shell.env("HOME", folder.path("")).env("USER", "ann");
        let mut shell = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (keyboard, screen) = (shell.stdin.take().unwrap(), BufReader::new(shell.stdout.take().unwrap()));
        Self { folder, names: Names::default(), shell, keyboard, screen, instead }
    }

    /// A text of the page with what is there instead.
    fn here(&self, shown: &str) -> String {
        self.instead.iter().fold(shown.to_owned(), |text, (shown, real)| text.replace(shown, real))
    }

    /// What a command prints, and its exit status.
    fn types(&mut self, command: &str) -> (Vec<String>, i32) {
        writeln!(self.keyboard, "{{ {command}\n}} </dev/null 2>&1; printf '\\n{END}%s\\n' $?").unwrap();
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            assert!(self.screen.read_line(&mut line).unwrap() > 0, "the shell is gone: {command}");
            let line = line.trim_end_matches('\n');
            if let Some(exit) = line.strip_prefix(END) {
                // The line before it ends what was printed last, or is empty.
                let last = lines.pop().filter(|last: &String| !last.is_empty());
                lines.extend(last);
                return (lines, exit.parse().unwrap());
            }
            lines.push(line.to_owned());
        }
    }

    fn reads(&mut self, block: &Block) {
        match block.kind {
            Kind::Console(exit) => self.console(block, exit),
            Kind::Toml => self.configuration(block),
            Kind::Rust => stands_in_the_library_test(block),
            Kind::Text | Kind::NotRun(_) => {}
            Kind::Json => panic!("{}: what is it compared with?", block.place),
        }
    }

    /// A part of a configuration is checked behind the page's own; a whole one, which begins with its name, stays.
    fn configuration(&mut self, block: &Block) {
        let shown = self.here(&block.text);
        if shown.starts_with("# countersign.toml\n") {
            self.folder.write("countersign.toml", &shown);
        } else {
            let whole = format!("{}\n{shown}", self.folder.text("countersign.toml"));
            self.folder.write("part/countersign.toml", &whole);
        }
        let folder = if shown.starts_with('#') { "." } else { "part" };
        let (printed, exit) = self.types(&format!("(cd {folder} && countersign config check)"));
        assert_eq!(exit, 0, "{}: {printed:#?}", block.place);
    }

    fn console(&mut self, block: &Block, exit: i32) {
        let mut commands: Vec<(&str, Vec<&str>)> = Vec::new();
        for line in block.text.lines() {
            match (line.strip_prefix("$ "), commands.last_mut()) {
                (Some(command), _) => commands.push((command, Vec::new())),
                (None, Some((_, shown))) => shown.push(line),
                (None, None) => panic!("{}: it begins with no command", block.place),
            }
        }
        let last = commands.len() - 1;
        for (index, (command, shown)) in commands.into_iter().enumerate() {
            let real = self.names.real(&self.here(command));
            let (printed, came) = self.types(&real);
            let place = format!("{}: {real}\n{}\n", block.place, printed.join("\n"));
            assert_eq!(came, if index == last { exit } else { 0 }, "{place}");
            if shown.is_empty() {
                continue;
            }
            for (shown, printed) in shown.iter().zip(&printed) {
                assert!(
                    self.names.fits(&self.here(shown), printed),
                    "{place}\nshown:   {shown}\nprinted: {printed}"
                );
            }
            assert_eq!(shown.len(), printed.len(), "{place}");
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        drop(self.shell.kill().and_then(|()| self.shell.wait()));
    }
}

#[test]
fn the_readme_is_true_from_its_beginning_to_its_end() {
    let server = Server::start(vec![says("The notices are up to date.")]);
    let mut reader = Reader::new(vec![("http://127.0.0.1:8080/v1", server.url().to_owned())]);
    blocks("README.md").iter().for_each(|block| reader.reads(block));
    assert_eq!(server.asked().len(), 2, "both runs with a model of one's own have asked it");
    let notice = reader.folder.text(".countersign/tour/opening-hours.md");
    assert!(notice.contains("11:00 to 17:00") && !notice.contains("71:00"));
}

#[test]
fn what_the_operations_page_says_is_so() {
    let mut reader = Reader::new(Vec::new());
    let backups = reader.folder.path("backups");
    std::fs::create_dir(&backups).unwrap();
    reader.instead.push(("/backups", backups.display().to_string()));
    // An installation with one run that has ended and one that waits.
    reader.folder.run(&["run", "--model", "demo", "x"]).expect(3);
    reader.folder.decide("approve", &[]).expect(0);
    reader.names.set("run_…", text(&reader.folder.newest_run()["id"]));
    reader.folder.run(&["run", "--model", "demo", "x"]).expect(3);
    blocks("docs/operations.md").iter().for_each(|block| reader.reads(block));
    assert!(backups.join("countersign-monday.db").exists());
    reader.folder.run(&["db", "doctor"]).expect(0);
}

#[test]
fn what_the_deployment_page_says_is_so() {
    let model = Server::start(vec![calls(&[("page_drop", json!({ "id": 7 }))]), says("Page 7 is gone.")]);
    let dies = ToolServer::start(Comes::Dies);
    let mut reader = Reader::new(Vec::new());
    let place = |below: &str| reader.folder.path(below).display().to_string();
    let (etc, var) = (place("etc"), place("var"));
    std::fs::create_dir(&var).unwrap();
    // The configuration of the page, at this test's places, with one tool and a model that answers.
    let config = text_of("deploy/countersign.toml")
        .replace("/var/lib/countersign", &var)
        .replace("https://models.example/v1", model.url());
    let tool = declared(
        "page_drop",
        &format!("http = \"{}\"", dies.url),
        "write",
        "data_class = \"editor_content\"",
    );
    reader.folder.write("page.toml", &format!("{config}{tool}"));
    let page = place("page.toml");
    reader.instead =
        vec![("deploy/countersign.toml", page), ("/etc/countersign", etc), ("sk-…", "sk-x".to_owned())];
    for block in &blocks("docs/deployment.md") {
        if block.text.starts_with("$ countersign pending list") {
            // A call that a person released, and that nothing answered.
            let mut printed = |command: &str| -> Value {
                // Notes are for people.
                let (lines, exit) = reader.types(&format!("{command} 2>/dev/null"));
                assert!(exit == 0 || exit == 3, "{command}: {lines:#?}");
                serde_json::from_str(&lines.join("\n")).unwrap()
            };
            printed("countersign groups reset content --json");
            let run = printed("countersign run --json x");
            let id = text(&run["pending"]["id"]);
            printed(&format!("countersign approve {id} --digest {} --json", text(&run["pending"]["digest"])));
            let open = printed("countersign pending list --json")["items"][0].clone();
            let open = printed(&format!("countersign pending show {} --json", text(&open["id"])));
            reader.names = Names::default();
            for (shown, key) in [("run_…", "run"), ("pnd_…", "id"), ("sha256:…", "digest")] {
                reader.names.set(shown, text(&open[key]));
            }
        }
        reader.reads(block);
    }
}

/// Rust without what does not count: blanks, and comments at the end of a line.
fn bare(rust: &str) -> String {
    let code = rust.lines().map(|line| line.split("//").next().unwrap_or_default());
    code.flat_map(str::chars).filter(|c| !c.is_whitespace()).collect()
}

/// Whether an example stands, line by line, in a test that is compiled and run; `…` is left out there as here.
fn stands_in_the_library_test(block: &Block) {
    let source = bare(&text_of(LIBRARY));
    let mut rest = source.as_str();
    for piece in block.text.lines().flat_map(|line| line.split('…')).map(bare) {
        let found = rest.split_once(&piece).unwrap_or_else(|| {
            panic!("{}: this does not stand in {LIBRARY}, at least not here: {piece}", block.place)
        });
        rest = found.1;
    }
}

fn contract(kind: &Kind) -> Vec<Block> {
    blocks(CONTRACT).into_iter().filter(|block| block.kind == *kind).collect()
}

#[test]
fn the_library_example_of_the_contract_is_compiled() {
    contract(&Kind::Rust).iter().for_each(stands_in_the_library_test);
}

#[test]
fn the_configuration_of_the_contract_is_accepted_but_for_the_keys_to_come() {
    let folder = Folder::new();
    let [sample] = &contract(&Kind::Toml)[..] else { panic!("one sample of everything") };
    folder.write("skills/editor/SKILL.md", "---\nname: editor\ndescription: x\n---\nx\n");
    let mut lines: Vec<&str> = sample.text.lines().collect();
    let mut refused = Vec::new();
    loop {
        folder.write("countersign.toml", &lines.join("\n"));
        let checked = folder.run(&["config", "check"]);
        if checked.exit == 0 {
            break;
        }
        let (at, key) = unknown_key(checked.one_sentence()).unwrap_or_else(|| panic!("{checked:?}"));
        // A table goes with all that belongs to it.
        let mut gone = 1;
        if lines[at].starts_with('[') {
            let name = lines[at].trim_start_matches('[').split(']').next().unwrap();
            let is_other = |line: &&str| line.starts_with('[') && !line[1..].starts_with(&format!("{name}."));
            gone += lines[at + 1..].iter().take_while(|line| !is_other(line)).count();
        }
        lines.drain(at..at + gone);
        refused.push(key);
    }
    refused.sort();
    assert_eq!(refused, KEYS_TO_COME);
}

/// Line (from 0) and key of a sentence such as `error: FILE:1: the key listen is unknown; …`.
fn unknown_key(sentence: &str) -> Option<(usize, String)> {
    let (before, after) = sentence.split_once(": the key ")?;
    let line: usize = before.rsplit_once(':')?.1.parse().ok()?;
    Some((line - 1, after.split_once(" is unknown")?.0.to_owned()))
}

#[test]
fn every_command_of_the_contract_is_there_but_for_those_to_come() {
    let folder = Folder::new();
    let (usages, mut missing) = (contract(&Kind::Text), Vec::new());
    for usage in usages.iter().flat_map(|block| block.text.lines()) {
        for usage in usage.split(" · ") {
            let usage = usage.strip_prefix("countersign ").unwrap_or(usage);
            let (command, rest) = usage.split_once(' ').unwrap_or((usage, ""));
            // `list|show ID|--all [TOOL…]|serve`: what begins small is a word that is typed.
            let mut parts = rest.trim_start_matches('[').split(" [");
            let first = parts.next().unwrap_or_default().to_owned();
            let rest =
                parts.fold(first, |all, part| all + part.split_once(']').map_or("", |(_, after)| after));
            let words = rest.split('|').filter_map(|part| part.split([' ', ']']).next());
            let typed = |word: &&str| !word.is_empty() && word.chars().all(|c| c.is_ascii_lowercase());
            let starts_small = rest.starts_with(|first: char| first.is_ascii_lowercase());
            let under: Vec<&str> = words.filter(|_| starts_small).filter(typed).collect();
            let is_there = |arguments: &[&str]| folder.run(arguments).exit == 0;
            let gone = if is_there(&[command, "--help"]) {
                under.into_iter().filter(|word| !is_there(&[command, word, "--help"])).collect()
            } else {
                vec![""]
            };
            missing.extend(gone.into_iter().map(|word| format!("{command} {word}").trim_end().to_owned()));
        }
    }
    missing.dedup();
    assert_eq!(missing, COMMANDS_TO_COME);
}

/// Whether a value has the shape that a page shows.
fn has_shape(shown: &Value, real: &Value, path: &str) {
    match (shown, real) {
        // What may be null is shown as one, or as what it is when it is there.
        (Value::Null, _) | (Value::Object(_), Value::Null) => {}
        (Value::Object(shown), Value::Object(real)) => {
            if let Some((_, each)) = shown.iter().find(|(key, _)| key.contains('…')) {
                return real.iter().for_each(|(key, real)| has_shape(each, real, &format!("{path}.{key}")));
            }
            if !shown.is_empty() {
                let keys =
                    |object: &serde_json::Map<String, Value>| object.keys().cloned().collect::<Vec<_>>();
                let (mut shown, mut real) = (keys(shown), keys(real));
                shown.sort();
                real.sort();
                assert_eq!(shown, real, "{path}: the keys that are shown, and those that are there");
            }
            shown.iter().for_each(|(key, shown)| has_shape(shown, &real[key], &format!("{path}.{key}")));
        }
        (Value::Array(shown), Value::Array(real)) => {
            if let Some(each) = shown.first() {
                real.iter().for_each(|real| has_shape(each, real, path));
            }
        }
        (Value::Bool(_), Value::Bool(_)) | (Value::Number(_), Value::Number(_)) => {}
        (Value::String(shown), real) => {
            let (words, nullable) = match shown.strip_suffix(" or null") {
                Some(words) => (words, true),
                None => (shown.as_str(), shown.split('|').any(|word| word == "null")),
            };
            if real.is_null() {
                return assert!(nullable, "{path} is null, and {shown:?} is shown");
            }
            let real = real.as_str().unwrap_or_else(|| panic!("{path} is {real}, and {shown:?} is shown"));
            let fits = if words.contains('|') {
                words.split('|').any(|word| word == real)
            } else if let Some((before, after)) = words.split_once('…') {
                real.starts_with(before) && real.ends_with(after)
            } else {
                // An example of a text.
                true
            };
            assert!(fits, "{path} is {real:?}, and {shown:?} is shown");
        }
        _ => panic!("{path} is {real}, and {shown} is shown"),
    }
}

#[test]
fn the_json_of_the_contract_is_what_comes() {
    let server = Server::start(vec![
        calls(&[("write_file", json!({ "path": "a.txt", "content": "a" }))]),
        calls(&[("pick_date", json!({}))]),
        calls(&[("drop", json!({}))]),
        says("done"),
    ]);
    let folder = Folder::new();
    folder.configure(server.url(), "");
    let dies = ToolServer::start(Comes::Dies);
    folder.configure_more(&declared("drop", &format!("http = \"{}\"", dies.url), "write", ""));
    folder.configure_more(
        "[[tools]]\nname = \"pick_date\"\ngroup = \"people\"\neffect = \"read\"\ncommand = [\"cat\"]\n\
         input = { type = \"object\", properties = { date = { type = \"string\" } } }\n",
    );
    let waiting = folder.json(&["run", "--json", "x"]);
    let open = folder.open();
    folder.decide("approve", &["--detach"]).expect(0);
    let approved = folder.json(&["pending", "show", text(&open["id"]), "--json"]);
    folder.run(&["runs", "resume", "--all"]).expect(3);
    let input = folder.open();
    folder.decide("answer", &["--data", "{\"date\":\"x\"}"]).expect(3);
    folder.decide("approve", &[]).expect(3);
    let unknown = folder.open();
    for (shown, part) in [(&approved, "decision"), (&input, "input"), (&unknown, "resolution")] {
        assert!(shown[part].is_object(), "{part} of {shown}");
    }
    folder.decide("settle", &["--outcome", "happened"]).expect(0);
    let tools = folder.json(&["tools", "list", "--json"])["items"].as_array().unwrap().clone();
    let real = [
        vec![waiting, folder.newest_run()],
        tools,
        vec![open, approved, input, unknown],
        vec![folder.json(&["tools", "explain", "read_file", "--json"])],
    ];
    let shown = contract(&Kind::Json);
    assert_eq!(shown.len(), real.len(), "Run, Tool, Pending, Verdict");
    for (block, real) in shown.iter().zip(&real) {
        let shown = serde_json::from_str(&block.text.replace("{…}", "{}"));
        let shown: Value = shown.unwrap_or_else(|error| panic!("{}: {error}", block.place));
        real.iter().for_each(|real| has_shape(&shown, real, &block.place));
    }
}
