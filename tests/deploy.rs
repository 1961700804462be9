//! The files in `deploy/`: what they name is there, and what they rely on is so.
//!
//! Not here: building the container, starting systemd and nginx.

use std::collections::BTreeSet;
use std::process::Command;
use std::time::Duration;

use crate::support::page::{files, project, text_of};
use crate::support::serve::Serve;
use crate::support::{Done, Folder};

/// How long the last answers may take when the process ends, after the grace for calls.
const LAST_ANSWERS: Duration = Duration::from_secs(3);
/// The longest that a caller may wait for an answer.
const PATIENCE: Duration = Duration::from_secs(300);
/// How long an idle connection is kept.
const IDLE: Duration = Duration::from_secs(30);

/// What comes after these words in the one line that begins with them.
fn after<'a>(text: &'a str, beginning: &str) -> &'a str {
    let found: Vec<&str> =
        text.lines().filter_map(|line| line.trim_start().strip_prefix(beginning)).collect();
    let [rest] = found[..] else { panic!("one line begins with {beginning:?}, not {found:?}") };
    rest.trim().trim_end_matches(';')
}

fn seconds(text: &str) -> Duration {
    Duration::from_secs(text.trim_end_matches('s').parse().unwrap_or_else(|error| panic!("{error}: {text}")))
}

/// The grace that a configuration without a word about it has, as the contract says.
fn drain() -> Duration {
    let contract = text_of("docs/contract.md");
    seconds(after(&contract, "drain       = ").split('"').nth(1).unwrap())
}

/// The program knows these arguments, but for the values that a file leaves open.
fn is_understood(arguments: &[&str]) {
    let folder = Folder::new();
    let help: Vec<&str> = arguments.iter().copied().chain(["--help"]).collect();
    folder.run(&help).expect(0);
}

/// Every variable of ours that a file names is one of the contract's.
fn names_known_variables(file: &str, text: &str) {
    let contract = text_of("docs/contract.md");
    let is_part = |letter: char| letter.is_ascii_uppercase() || letter == '_';
    let named = text.split("COUNTERSIGN_").skip(1);
    let named: BTreeSet<&str> =
        named.map(|rest| &rest[..rest.find(|letter| !is_part(letter)).unwrap_or(rest.len())]).collect();
    for name in named {
        let known = contract.split("COUNTERSIGN_").skip(1);
        let is_known = known
            .into_iter()
            .any(|rest| rest.strip_prefix(name).is_some_and(|rest| !rest.starts_with(is_part)));
        assert!(is_known, "{file}: the contract knows no COUNTERSIGN_{name}");
    }
}

#[test]
fn the_units_start_what_there_is_and_outlast_its_end() {
    for file in files("deploy", ".service") {
        let unit = text_of(&file);
        let command = after(&unit, "ExecStart=/usr/local/bin/countersign").replace("%i", "1");
        is_understood(&command.split_whitespace().collect::<Vec<_>>());
        names_known_variables(&file, &unit);
        assert!(seconds(after(&unit, "TimeoutStopSec=")) > drain() + LAST_ANSWERS, "{file}");
        // What a tool does is not to be cut off before countersign has given it its time.
        assert_eq!(after(&unit, "KillMode="), "mixed", "{file}");
        // What is started again mends itself, and a wrong configuration does not.
        assert_eq!(after(&unit, "Restart="), "on-failure", "{file}");
        assert_eq!(after(&unit, "RestartPreventExitStatus="), "2", "{file}");
        assert!(!unit.contains("WatchdogSec"), "{file}: nobody would answer");
    }
}

#[test]
fn the_key_file_that_the_environment_names_goes_before_the_configured_one() {
    let folder = Folder::new();
    folder.write("countersign.toml", "key_file = \"nowhere/key\"\n");
    folder.write("handed/key", "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=\n");
    let with = |key: &str, arguments: &[&str]| {
        let mut command = folder.command(arguments);
        Done::from(command.env("COUNTERSIGN_KEY_FILE", folder.path(key)).output().unwrap())
    };
    with("handed/key", &["db", "migrate"]).expect(0);
    assert!(!folder.path("nowhere").exists(), "no other key is made, nor a place for one");
    with("handed/key", &["db", "doctor"]).expect(0);
    folder.write("other/key", "QUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUE=\n");
    let refused = with("other/key", &["db", "doctor"]).expect(2);
    assert!(refused.one_sentence().contains("sealed under the key"), "{refused:?}");
}

#[test]
fn a_wrong_configuration_is_not_worth_another_start_and_a_database_that_is_away_is() {
    let folder = Folder::new();
    folder.write("countersign.toml", "listen = 7\n");
    folder.run(&["serve"]).expect(2);
    folder.write(
        "countersign.toml",
        "database = \"postgres:///d?host=/nowhere\"\nkey_file = \"key\"\n[providers.demo]\nkind = \"demo\"\n\
         [agents.default]\nmodels = [\"demo/tour\"]\n",
    );
    folder.write("key", "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=\n");
    for command in ["serve", "work"] {
        let away = folder.run(&[command]).expect(4);
        assert!(away.one_sentence().contains("cannot be opened"), "{away:?}");
    }
}

/// The arguments of an instruction that is written as a list.
fn listed<'a>(container: &'a str, instruction: &str) -> Vec<String> {
    let list: &'a str = after(container, instruction);
    serde_json::from_str(list).unwrap_or_else(|error| panic!("{error}: {list}"))
}

#[test]
fn the_container_is_made_of_what_is_there_and_starts_what_there_is() {
    let container = text_of("deploy/Containerfile");
    let toolchain = text_of("rust-toolchain.toml");
    let version = after(&toolchain, "channel = ").trim_matches('"');
    assert!(after(&container, "FROM docker.io/library/rust:").starts_with(&format!("{version}-")));
    assert!(!container.contains(":latest"));
    let package = after(&container, "RUN cargo build --locked --release -p ").to_owned();
    let manifest = text_of("crates/server/Cargo.toml");
    assert_eq!(after(manifest.split("[[").next().unwrap(), "name = ").trim_matches('"'), package);
    assert!(container.contains("/src/target/release/countersign /usr/local/bin/countersign"));
    assert!(manifest.contains("name = \"countersign\""), "the program is called so");
    assert_eq!(listed(&container, "ENTRYPOINT "), ["/usr/local/bin/countersign"]);
    // The other such line is the check's.
    let command = listed(&container.replace("    CMD ", ""), "CMD ");
    is_understood(&command.iter().map(String::as_str).collect::<Vec<_>>());
    names_known_variables("deploy/Containerfile", &container);
    assert_eq!(after(&container, "USER "), "10001:10001", "nobody's account");
    // Nothing secret and nothing of this machine goes into it.
    let left_out = text_of(".dockerignore");
    for name in [".git", "target", "**/.countersign"] {
        assert!(left_out.lines().any(|line| line == name), "{name}");
    }
    assert!(!container.contains("COUNTERSIGN_KEY="));
}

#[test]
fn the_check_of_the_container_finds_a_server_that_is_alive_and_no_other() {
    let container = text_of("deploy/Containerfile");
    let folder = Folder::new();
    folder.write(
        "countersign.toml",
        "[providers.demo]\nkind = \"demo\"\n[agents.default]\nmodels = [\"demo/tour\"]\n",
    );
    let serve = Serve::start(&folder);
    let port = serve.address().rsplit(':').next().unwrap().to_owned();
    let exit = |port: &str| {
        let check = health_check(&container).into_iter().map(|word| word.replace("8787", port));
        let check: Vec<String> = check.collect();
        Command::new(&check[0]).args(&check[1..]).output().unwrap().status.success()
    };
    assert!(exit(&port));
    drop(serve);
    assert!(!exit(&port), "nobody is there");
}

fn health_check(container: &str) -> Vec<String> {
    let (_, check) = container.split_once("HEALTHCHECK").unwrap();
    let line = check.lines().find_map(|line| line.trim_start().strip_prefix("CMD ")).unwrap();
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
}

#[test]
fn the_proxies_wait_longer_than_an_answer_may_take_and_let_go_of_idle_connections_first() {
    let nginx = text_of("deploy/nginx.conf");
    assert!(seconds(after(&nginx, "proxy_read_timeout ")) > PATIENCE);
    assert!(seconds(after(&nginx, "keepalive_timeout ")) < IDLE);
    for line in ["proxy_buffering off", "proxy_set_header Host $host", "client_max_body_size 4m"] {
        assert!(nginx.contains(&format!("{line};")), "{line}");
    }
    let caddy = text_of("deploy/Caddyfile");
    assert!(seconds(after(&caddy, "response_header_timeout ")) > PATIENCE);
    assert!(seconds(after(&caddy, "keepalive ")) < IDLE);
    assert_eq!(after(&caddy, "flush_interval "), "-1");
    assert!(caddy.contains("max_size 4MiB"));
}

#[test]
fn every_file_there_is_one_that_the_page_speaks_of() {
    let page = text_of("docs/deployment.md");
    for file in files("deploy", "") {
        assert!(page.contains(&file), "{file}");
    }
    for link in page.split("](../").skip(1).filter_map(|rest| rest.split(')').next()) {
        assert!(project().join(link).exists(), "{link}");
    }
}
