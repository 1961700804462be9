use countersign::{DataClass, Effect, OperatorWord, Origin, Pause, TIMEOUT_DEFAULT, ToolSpec};
use serde_json::json;

use countersign_clients::CollectorTarget;

use super::*;

fn parse(text: &str) -> Result<Config, ConfigError> {
    Config::parse(Path::new("/x/countersign.toml"), text)
}

fn wrong(text: &str) -> String {
    parse(text).unwrap_err().to_string()
}

#[test]
fn everything_that_is_configured_is_typed() {
    let config = parse(
        r#"
        database = "sqlite:data/runs.db"
        key_file = "/keys/key"
        workspace = "pages"
        listen = "[::]:80"
        public_url = "https://agents.example"

        [providers.stub]
        kind = "openai"
        base_url = "http://127.0.0.1:9100/v1"
        api_key_env = "STUB_KEY"
        zone = "local"

        [agents.default]
        models = ["stub/a/b", "stub/c"]
        system_prompt = "Look after the pages."
        tool_groups = ["files"]
        skills = ["editor"]
        max_iterations = 8
        max_tokens = 200_000
        max_working_time = "10m"
        context_window = 128_000
        approval_ttl = "7d"
        second_approver = true

        [skills]
        paths = ["skills", "/more"]

        [tool_settings.read_file]
        enabled = false
        approval = "ask"
        requires_admin = true
        data_class = "source_code"

        [policy]
        data_class_enforcement = " Observe "

        [workers]
        lease = "2s"
        concurrency = 4
        drain = "10s"

        [log]
        format = "json"
        level = "warn"

        [telemetry]
        otlp = "https://collector.example/otel/"
        headers_env = "COLLECTOR"
        "#,
    )
    .unwrap();
    assert_eq!(
        config,
        Config {
            file: Some("/x/countersign.toml".into()),
            folder: "/x".into(),
            database: Database::Sqlite("/x/data/runs.db".into()),
            key_file: "/keys/key".into(),
            workspace: Some("/x/pages".into()),
            providers: vec![Provider {
                name: "stub".parse().unwrap(),
                line: 8,
                kind: Kind::OpenAi {
                    base_url: "http://127.0.0.1:9100/v1".into(),
                    api_key_env: Some("STUB_KEY".into())
                },
                zone: Some(Zone::Local),
            }],
            agents: vec![Agent {
                name: "default".parse().unwrap(),
                models: (vec![ModelRef::parse("stub/a/b").unwrap(), ModelRef::parse("stub/c").unwrap()], 15),
                system_prompt: Some("Look after the pages.".into()),
                tool_groups: (vec!["files".parse().unwrap()], 17),
                skills: (vec!["editor".into()], 18),
                max_iterations: 8,
                max_tokens: Some(200_000),
                max_working_time: Some(Duration::from_secs(600)),
                context_window: Some(128_000),
                approval_ttl: Some(Duration::from_secs(604_800)),
                second_approver: true,
                line: 14,
            }],
            tools: Vec::new(),
            tool_settings: vec![ToolSettings {
                name: "read_file".parse().unwrap(),
                line: 29,
                enabled: Some(false),
                asks: true,
                requires_admin: Some((true, 32)),
                data_class: Some((DataClass::SourceCode, 33)),
                hosts: Vec::new(),
            }],
            skill_paths: vec!["/x/skills".into(), "/more".into()],
            enforcement: Enforcement::Observe,
            lease: Duration::from_secs(2),
            concurrency: NonZeroUsize::new(4).unwrap(),
            drain: Duration::from_secs(10),
            listen: "[::]:80".parse().unwrap(),
            public_url: Some(PublicUrl::parse("https://agents.example").unwrap()),
            log: Log { format: LogFormat::Json, level: LogLevel::Warn },
            webhooks: Vec::new(),
            telemetry: Some(Telemetry {
                line: 47,
                collector: CollectorTarget::parse("https://collector.example/otel/v1/traces", false).unwrap(),
                headers_env: Some("COLLECTOR".into()),
            }),
        }
    );
}

#[test]
fn a_declared_tool_has_the_strictest_facts_where_nothing_is_said() {
    let config = parse(
        r#"
        [[tools]]
        name = "page_drop"
        group = "content"
        http = "http://127.0.0.1:9200/page_drop"

        [[tools]]
        name = "word_count"
        description = "Count"
        group = "text"
        effect = "read"
        command = ["wc", "-w"]
        timeout = "2s"
        data_class = "editor_content"
        approval = "ask"
        enabled = false
        requires_admin = true
        preview = "http://127.0.0.1:9200/p"
        parameters = { type = "object", properties = { n = { type = "integer", minimum = -1, maximum = 1.5 } } }
        "#,
    )
    .unwrap();
    let strict = || Tool {
        spec: ToolSpec {
            name: "page_drop".parse().unwrap(),
            description: String::new(),
            group: "content".parse().unwrap(),
            origin: Origin::Http,
            effect: Effect::Write,
            data_class: DataClass::SecretAdjacent,
            enabled_by_default: true,
            requires_admin: false,
            pause: Pause::Runs,
            operator: OperatorWord::Silent,
            parameters: json!({ "type": "object", "properties": {} }),
        },
        way: Way::Http("http://127.0.0.1:9200/page_drop".into()),
        preview: None,
        timeout: TIMEOUT_DEFAULT,
        line: 2,
    };
    let said = Tool {
        spec: ToolSpec {
            name: "word_count".parse().unwrap(),
            description: "Count".into(),
            group: "text".parse().unwrap(),
            origin: Origin::Command,
            effect: Effect::Read,
            data_class: DataClass::EditorContent,
            enabled_by_default: false,
            requires_admin: true,
            pause: Pause::Asks,
            parameters: json!({
                "type": "object", "properties": { "n": { "type": "integer", "minimum": -1, "maximum": 1.5 } }
            }),
            ..strict().spec
        },
        way: Way::Command(vec!["wc".into(), "-w".into()]),
        preview: Some("http://127.0.0.1:9200/p".into()),
        timeout: Duration::from_secs(2),
        line: 7,
    };
    assert_eq!(config.tools, [strict(), said]);
}

#[test]
fn an_error_in_a_tool_names_the_tool() {
    let tool = "[[tools]]\nname = \"a\"\ngroup = \"g\"\n";
    let http = "http = \"http://127.0.0.1:1/\"\n";
    for (text, expected) in [
        ("tools = 7", ":1: tools: it must be a list of tables, each begun with [[tools]]"),
        ("[[tools]]\ngroup = \"g\"\nhttp = \"x\"", ":1: tools: the key name is missing"),
        ("[[tools]]\nname = \"a.b\"", ":2: tools.a.b.name: \"a.b\" is not a tool name"),
        ("[[tools]]\nname = \"a\"\nhttp = \"x\"", ":1: tools.a: the key group is missing"),
        (tool, ":1: tools.a: one of the keys http and command must be there"),
        (
            &format!("{tool}{http}command = [\"x\"]"),
            ":5: tools.a.command: a tool has http or command, not both",
        ),
        (
            &format!("{tool}{http}efect = \"read\""),
            ":5: the key tools.a.efect is unknown; did you mean effect?",
        ),
        (
            &format!("{tool}{http}effect = \"reads\""),
            ":5: tools.a.effect: it must be one of read, idempotent_write",
        ),
        (
            &format!("{tool}{http}data_class = \"x\""),
            ":5: tools.a.data_class: it must be one of public_content",
        ),
        (&format!("{tool}{http}approval = \"no\""), ":5: tools.a.approval: it must be \"ask\""),
        (&format!("{tool}{http}timeout = \"0s\""), ":5: tools.a.timeout: a call needs some time"),
        (
            &format!("{tool}{http}parameters = \"x\""),
            ":5: tools.a.parameters: it must be a table, not a text",
        ),
        (
            &format!("{tool}{http}parameters = {{ x = 1979-05-27 }}"),
            ":5: tools.a.parameters: it must be plain JSON, which has no time",
        ),
        (
            &format!("{tool}{http}input = {{ type = \"object\" }}"),
            ":5: tools.a.input: a tool that needs input must",
        ),
        (&format!("{tool}{http}\n{tool}{http}"), ":6: tools.a: the tool of line 1 has this name already"),
        (
            "[[tools]]\nname = \"read_file\"\ngroup = \"g\"\nhttp = \"x\"",
            ":1: tools.read_file: a built-in tool has this name",
        ),
        ("[tool_settings.a]\nhosts = []", ":2: tool_settings.a.hosts: only fetch_page has hosts"),
        ("[tool_settings.fetch_page]\nhosts = [\"*\"]", ":2: tool_settings.fetch_page.hosts: "),
        ("[tool_settings.\"a.b\"]", ":1: tool_settings.a.b: \"a.b\" is not a tool name"),
        (
            "[agents.a]\nmodels = [\"a/b\"]\nskills = [\"../x\"]",
            ":3: agents.a.skills: a skill is named by its folder",
        ),
    ] {
        let message = wrong(text);
        assert!(message.contains(expected), "{text}\n{message}");
    }
}

#[test]
fn without_the_line_there_is_no_workspace() {
    let config = parse("").unwrap();
    assert_eq!(config.workspace, None);
    assert_eq!(config.database, Database::Sqlite("/x/.countersign/countersign.db".into()));
    assert_eq!(config.key_file, Path::new("/x/.countersign/key"));
}

#[test]
fn rule_p8_only_observe_observes() {
    for (word, observes) in
        [("observe", true), ("OBSERVE ", true), ("observing", false), ("off", false), ("", false)]
    {
        let config = parse(&format!("[policy]\ndata_class_enforcement = \"{word}\"")).unwrap();
        assert_eq!(config.enforcement == Enforcement::Observe, observes, "{word:?}");
    }
}

#[test]
fn an_error_names_file_line_key_and_what_was_meant() {
    let agent = "[agents.default]\nmodels = [\"a/b\"]\n";
    for (text, expected) in [
        (
            "\nworkspaces = \".\"",
            "/x/countersign.toml:2: the key workspaces is unknown; did you mean workspace?",
        ),
        (
            "[agents.default]\nmodel = [\"a/b\"]",
            ":2: the key agents.default.model is unknown; did you mean models?",
        ),
        ("[workers]\nleaze = \"2s\"", ":2: the key workers.leaze is unknown; did you mean lease?"),
        ("qqq = 1", ":1: the key qqq is unknown; known here are listen, public_url, database,"),
        ("workspace = 7", ":1: workspace: it must be a text in quotes, not a number"),
        ("workspace = \"a\"\nworkspace = \"b\"", ":2: this is not valid TOML: duplicate key"),
        ("[workers]\nlease = \"2\"", ":2: workers.lease: a duration is a whole number and a unit"),
        ("listen = \"localhost:80\"", ":1: listen: it must be ADDRESS:PORT"),
        ("public_url = \"agents.example\"", ":1: public_url: it must be http:// or https://"),
        ("[log]\nformat = \"xml\"", ":2: log.format: it must be one of text, json"),
        ("[log]\nlevel = \"loud\"", ":2: log.level: it must be one of off, error, warn, info, debug"),
        ("[telemetry]\nheaders_env = \"X\"", ":1: telemetry: the key otlp is missing"),
        (
            "[telemetry]\notlp = \"localhost:4318\"",
            ":2: telemetry.otlp: it must be where a collector takes OTLP",
        ),
        (
            "[telemetry]\notlp = \"http://c:4318\"",
            ":2: telemetry.otlp: over http anybody on the way reads along",
        ),
        ("[telemetry]\notlp = \"https://a:b@c\"", ":2: telemetry.otlp: it holds no credential"),
        ("[telemetry]\nendpoint = \"https://c\"", ":2: the key telemetry.endpoint is unknown"),
        ("[workers]\nconcurrency = 0", ":2: workers.concurrency: it must be from 1 to"),
        ("[workers]\ndrain = \"soon\"", ":2: workers.drain: a duration is"),
        ("[workers]\nlease = \"1ms\"", ":2: workers.lease: a lease is at least 500ms"),
        (
            "database = \"postgres://u:secret@h/d\"",
            ":1: database: a password does not belong here: set PGPASSWORD",
        ),
        ("database = \"postgres://u@h/d?sslmode=prefer\"", ":1: database: sslmode must be disable, require,"),
        ("database = \"postgres://u@h\"", ":1: database: it names no database"),
        ("[workers]\nlease = \"11m\"", ":2: workers.lease: a lease is at most 10m"),
        ("database = \"runs.db\"", ":1: database: a database is written \"sqlite:PATH\""),
        ("[providers.x]\nkind = \"open\"", ":2: providers.x.kind: it must be one of openai, demo"),
        (
            "[providers.x]\nkind = \"anthropic\"",
            ":2: providers.x.kind: this kind is not supported by this build",
        ),
        ("[providers.x]\nkind = \"openai\"", ":1: providers.x: the key base_url is missing"),
        (
            "[providers.x]\nkind = \"demo\"\nzone = \"lokal\"",
            ":3: providers.x.zone: it must be one of local, private_hosted",
        ),
        ("[providers.X]\nkind = \"demo\"", ":1: providers.X: \"X\" is not a provider name"),
        ("[agents.default]\n", ":1: agents.default: the key models is missing or empty"),
        ("[agents.default]\nmodels = [\n\"a/b\",\n\"c\"]", ":4: agents.default.models: \"c\" is not a model"),
        (
            &format!("{agent}tool_groups = [\"Files\"]"),
            ":3: agents.default.tool_groups: \"Files\" is not a group name",
        ),
        (
            &format!("{agent}max_iterations = 0"),
            ":3: agents.default.max_iterations: it must be from 1 to 10000",
        ),
        (
            &format!("{agent}second_approver = \"no\""),
            ":3: agents.default.second_approver: it must be true or false, not a text",
        ),
        ("agents = 7", ":1: agents: it must be a table, not a number"),
        ("providers.x = 7", ":1: providers.x: it must be a table, not a number"),
    ] {
        let message = wrong(text);
        assert!(message.contains(expected), "{text}\n{message}");
        assert!(!message.contains('\n'), "{message}");
    }
}

#[test]
fn the_nearest_file_above_is_found_and_a_named_one_wins() {
    let folder = tempfile::tempdir().unwrap();
    let below = folder.path().join("a/b");
    std::fs::create_dir_all(&below).unwrap();
    let here = Environment::of(&below, &[]);
    assert_eq!(Config::find(None, &here).unwrap().file, None);
    std::fs::write(folder.path().join(FILE), "").unwrap();
    assert_eq!(Config::find(None, &here).unwrap().folder, folder.path());
    std::fs::write(below.join("other.toml"), "").unwrap();
    let named = Environment::of(&below, &[("COUNTERSIGN_CONFIG", "other.toml")]);
    assert_eq!(Config::find(None, &named).unwrap().folder, below);
    assert!(matches!(Config::find(Some(Path::new("gone.toml")), &named), Err(ConfigError::File { .. })));
}

#[test]
fn a_configuration_that_cannot_be_read_is_not_passed_over() {
    let folder = tempfile::tempdir().unwrap();
    let (below, file) = (folder.path().join("a"), folder.path().join(FILE));
    std::fs::create_dir(&below).unwrap();
    let refused = || {
        let found = Config::find(None, &Environment::of(&below, &[]));
        assert!(matches!(&found, Err(ConfigError::File { file: named, .. }) if *named == file), "{found:?}");
    };
    // Without what it says, all tools over this folder would be on.
    std::os::unix::fs::symlink(folder.path().join("gone.toml"), &file).unwrap();
    refused();
    std::fs::remove_file(&file).unwrap();
    std::fs::create_dir(&file).unwrap();
    refused();
}
