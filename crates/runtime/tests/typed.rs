//! What the attributes `tool` and `arguments` write: facts, schemas, and what reaches the function.

#![cfg(test)]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use countersign::testing::{ScriptedModel, Told, call_context, preview_context, text, turn};
use countersign::{
    Agent, AgentName, Agents, AnyTool, Arguments, CallContext, DataClass, Decision, Effect, Enforcement,
    Limits, MemoryStore, ModelRef, Models, Outcome, Parts, Pause, PreviewContext, Principal, Provider,
    Registry, RegistryError, RunRequest, Runtime, Store, Subject, SystemClock, TIMEOUT_DEFAULT, Tool,
    ToolError, ToolFailure, ToolOutput, ToolPreview, Waiting, Zone, arguments, tool,
};
use serde_json::{Value, json};

fn alice() -> Subject {
    Subject::parse("alice").unwrap()
}

fn given(fields: &Value) -> Arguments {
    Arguments::read(Some(&fields.to_string())).unwrap()
}

/// A page.
#[arguments]
#[derive(Debug)]
#[expect(dead_code, reason = "what was read is shown by `Debug`")]
struct Page {
    /// The number of the page.
    id: u64,
    /// Which text of it.
    #[serde(default)]
    language: Language,
    #[schemars(range(max = 9))]
    copies: Option<i32>,
    author: Option<Author>,
}

#[arguments]
#[derive(Debug, Default)]
#[serde(rename_all = "snake_case")]
enum Language {
    #[default]
    German,
    English,
}

#[arguments]
#[derive(Debug)]
#[expect(dead_code, reason = "as above")]
struct Author {
    name: String,
}

/// What reached a tool.
#[derive(Clone, Default)]
struct Reached(Arc<Mutex<Vec<String>>>);

impl Reached {
    fn note(&self, line: String) {
        self.0.lock().unwrap().push(line);
    }

    fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

/// Its own words, which nobody but a programmer reads.
struct PageGet;

/// Read a page.
///
///   All of it.
#[tool(group = "content", effect = read)]
impl PageGet {
    async fn call(&self, page: Page, _cx: &CallContext) -> Result<ToolOutput, ToolError> {
        Ok(format!("{page:?}").into())
    }
}

struct DropPage {
    reached: Reached,
}

const GROUP: &str = "content.write";

/// Delete a page.
#[tool(
    name = "page_drop",
    group = GROUP,
    effect = write,
    data_class = editor_content,
    approval = ask,
    requires_admin = true,
    enabled = false,
    timeout = Duration::from_secs(5)
)]
impl DropPage {
    /// The words of a function are not the tool's.
    async fn call(&self, page: Page, cx: &CallContext) -> Result<ToolOutput, ToolError> {
        let (key, seen) = (&cx.idempotency_key, &cx.precondition);
        self.reached.note(format!("{} for {} under {key} after {seen:?}", page.id, cx.actor));
        Ok(self.done().into())
    }

    async fn preview(&self, page: Page, cx: &PreviewContext) -> Result<ToolPreview, ToolError> {
        if page.id == 0 {
            return Err(ToolError::answered("there is no page 0"));
        }
        let lines = vec![format!("page {} of {} goes", page.id, cx.actor)];
        Ok(ToolPreview { lines, precondition: Some(json!({ "version": 3 })) })
    }

    fn done(&self) -> &'static str {
        "deleted"
    }
}

#[arguments]
struct Order {
    guest: String,
    /// What the model proposes; a person has the last word.
    nights: Option<u8>,
}

#[arguments]
struct Stay {
    /// Until when.
    until: String,
    nights: Option<u8>,
}

struct BookRoom<N>(N);

/// Book a room.
#[tool(group = "rooms", effect = read)]
impl<N> BookRoom<N>
where
    N: Fn(String) + Send + Sync,
{
    async fn call(
        &self,
        Order { guest, nights }: Order,
        stay: Stay,
        _cx: &CallContext,
    ) -> Result<ToolOutput, ToolError> {
        (self.0)(format!("{guest} until {} for {nights:?} = {:?}", stay.until, stay.nights));
        Ok("booked".into())
    }
}

fn drop_page() -> DropPage {
    DropPage { reached: Reached::default() }
}

#[test]
fn rule_a2_the_facts_are_those_declared_and_else_the_strictest() {
    let spec = PageGet.spec();
    assert_eq!((spec.name.as_str(), spec.group.as_str()), ("page_get", "content"));
    assert_eq!(spec.description, "Read a page.\n\n  All of it.");
    assert_eq!((spec.effect, spec.data_class), (Effect::Read, DataClass::SecretAdjacent));
    assert_eq!((spec.pause, spec.requires_admin, spec.enabled_by_default), (Pause::Runs, false, true));
    assert_eq!(Tool::timeout(&PageGet), TIMEOUT_DEFAULT);

    let spec = drop_page().spec();
    assert_eq!((spec.name.as_str(), spec.group.as_str()), ("page_drop", GROUP));
    assert_eq!((spec.effect, spec.data_class), (Effect::Write, DataClass::EditorContent));
    assert_eq!((spec.pause, spec.requires_admin, spec.enabled_by_default), (Pause::Asks, true, false));
    assert_eq!(Tool::timeout(&drop_page()), Duration::from_secs(5));
}

#[test]
fn rule_a3_a_second_type_is_the_input_marker_and_carries_its_schema() {
    let spec = BookRoom(drop::<String>).spec();
    assert_eq!(spec.name.as_str(), "book_room");
    let Pause::NeedsInput(schema) = &spec.pause else { panic!("{:?}", spec.pause) };
    assert_eq!(
        *schema,
        json!({
            "type": "object",
            "properties": {
                "until": { "type": "string", "description": "Until when." },
                "nights": { "type": ["integer", "null"], "minimum": 0, "maximum": 255 },
            },
            "required": ["until"],
            "additionalProperties": false,
        })
    );
    assert!(spec.parameters["properties"].get("until").is_none(), "{}", spec.parameters);
    assert!(Registry::new([BookRoom(drop::<String>).into()]).is_ok());
}

/// What the attribute refuses to compile is refused at registration too, whoever wrote it.
#[test]
fn rule_a3_a_write_that_needs_input_is_refused_at_registration_too() {
    struct Loosened;

    #[async_trait::async_trait]
    impl Tool for Loosened {
        fn spec(&self) -> countersign::ToolSpec {
            countersign::ToolSpec { effect: Effect::IdempotentWrite, ..BookRoom(drop::<String>).spec() }
        }

        async fn call(&self, _arguments: &Arguments, _cx: &CallContext) -> Result<ToolOutput, ToolError> {
            Ok("never".into())
        }
    }

    let refused = Registry::new([Loosened.into()]).unwrap_err();
    assert!(matches!(refused, RegistryError::NeedsInputAndApproval(_)), "{refused}");
}

#[test]
fn rule_a5_the_schema_is_closed_and_does_not_know_the_names_of_types() {
    assert_eq!(
        PageGet.spec().parameters,
        json!({
            "type": "object",
            "description": "A page.",
            "properties": {
                "id": {
                    "type": "integer", "minimum": 0, "maximum": u64::MAX, "description": "The number of the page.",
                },
                "language": {
                    "type": "string", "enum": ["german", "english"], "description": "Which text of it.",
                },
                "copies": { "type": ["integer", "null"], "minimum": i32::MIN, "maximum": 9 },
                "author": {
                    "type": ["object", "null"],
                    "properties": { "name": { "type": "string" } },
                    "required": ["name"],
                    "additionalProperties": false,
                },
            },
            "required": ["id"],
            "additionalProperties": false,
        })
    );
}

/// A person who approves it sees a number that the function cannot be given, or is given as another.
#[test]
fn rule_a5_a_number_that_the_type_cannot_hold_is_refused_by_the_schema() {
    #[arguments]
    #[expect(dead_code, reason = "only its schema is of interest")]
    struct Numbers {
        long: Option<i64>,
        size: Option<isize>,
        natural: Option<u64>,
        wide: Option<i128>,
        single: Option<f32>,
        double: Option<f64>,
    }

    let schema = countersign::typed::schema::<Numbers>();
    let fits = jsonschema_of(&schema);
    for (field, good, bad) in [
        ("long", json!(i64::MAX), json!(i64::MAX.cast_unsigned() + 1)),
        ("long", json!(i64::MIN), json!(-1e20)),
        ("size", json!(isize::MIN), json!(u64::MAX)),
        ("natural", json!(u64::MAX), json!(1e20)),
        ("wide", json!(u64::MAX), json!(1e30)),
        ("single", json!(f32::MAX), json!(1e300)),
        ("single", json!(f32::MIN), json!(-1e300)),
        ("double", json!(1e300), json!("1e300")),
    ] {
        assert!(fits(&json!({ field: good })), "{field}: {good}");
        assert!(!fits(&json!({ field: bad })), "{field}: {bad}");
    }
}

/// Types that somebody derived by themselves, open as they are.
#[test]
fn rule_a5_types_of_others_are_closed_too() {
    use countersign::typed::{Deserialize, JsonSchema, schema};

    #[derive(Deserialize, JsonSchema)]
    #[serde(crate = "countersign::typed::serde", tag = "kind")]
    #[schemars(crate = "countersign::typed::schemars")]
    #[expect(dead_code, reason = "only its schema is of interest")]
    enum Shape {
        Circle { radius: f64 },
        Square { side: f64 },
    }

    let shape = schema::<Shape>();
    assert_eq!((&shape["type"], &shape["unevaluatedProperties"]), (&json!("object"), &json!(false)));
    let validator = jsonschema_of(&shape);
    assert!(validator(&json!({ "kind": "Circle", "radius": 1.5 })));
    assert!(!validator(&json!({ "kind": "Circle", "side": 1 })));
    assert!(!validator(&json!({ "kind": "Square", "side": 1, "more": 1 })));
}

fn jsonschema_of(schema: &Value) -> impl Fn(&Value) -> bool {
    let validator = jsonschema::draft202012::new(schema).unwrap();
    move |value| validator.is_valid(value)
}

/// Arguments are one object, and a person can only fill in fields that can be named.
#[test]
fn rule_a5_types_that_are_no_objects_cannot_be_registered() {
    struct Wrong;
    #[arguments]
    struct Nothing {}
    #[arguments]
    #[expect(dead_code, reason = "only its schema is of interest")]
    struct Number(u8);
    #[arguments]
    #[expect(dead_code, reason = "only its schema is of interest")]
    enum Either {
        This { a: u8 },
        That { b: u8 },
    }

    /// Take a number.
    #[tool(group = "wrong", effect = read)]
    impl Wrong {
        async fn call(&self, _number: Number, _cx: &CallContext) -> Result<ToolOutput, ToolError> {
            Ok("never".into())
        }
    }
    let refused = Registry::new([Wrong.into()]).unwrap_err().to_string();
    assert_eq!(
        refused,
        r#"the schema of parameters of the tool wrong cannot be used: it describes "integer" and no object"#
    );

    struct Ask;
    /// Ask for one of two.
    #[tool(group = "wrong", effect = read)]
    impl Ask {
        async fn call(
            &self,
            _nothing: Nothing,
            _either: Either,
            _cx: &CallContext,
        ) -> Result<ToolOutput, ToolError> {
            Ok("never".into())
        }
    }
    let refused = Registry::new([Ask.into()]).unwrap_err().to_string();
    assert_eq!(
        refused,
        "the schema of input of the tool ask cannot be used: it names no fields in `properties`"
    );
}

#[tokio::test]
async fn rule_a5_what_runs_is_read_from_the_canonical_text() {
    let cx = call_context(&alice(), None);
    for (text, shown) in [
        (r#"{"id":18446744073709551615}"#, "Page { id: 18446744073709551615, language: German"),
        (r#"{"id":9007199254740993,"language":"english"}"#, "Page { id: 9007199254740993, language: English"),
        // JSON knows one kind of number: what a person is shown as 7 is 7.
        (r#"{"id":7.0}"#, "Page { id: 7, language: German"),
    ] {
        let arguments = Arguments::read(Some(text)).unwrap();
        let output = Tool::call(&PageGet, &arguments, &cx).await.unwrap();
        assert!(output.content.kept().starts_with(shown), "{text}: {}", output.content.kept());
    }
}

#[tokio::test]
async fn rule_a5_what_the_type_refuses_is_an_error_and_reaches_nothing() {
    let tool = drop_page();
    let cx = call_context(&alice(), None);
    for fields in [json!({}), json!({ "id": -1 }), json!({ "id": 7, "more": 1 }), json!({ "id": "7" })] {
        let error = Tool::call(&tool, &given(&fields), &cx).await.unwrap_err();
        assert!(
            matches!(error.failure(), ToolFailure::NotSent(words) if words.kept().starts_with("Not run: the arguments"))
        );
        let shown = Tool::preview(&tool, &given(&fields), &preview_context(&alice())).await.unwrap();
        assert!(matches!(shown.unwrap_err().failure(), ToolFailure::NotSent(_)));
    }
    assert_eq!(tool.reached.lines(), [""; 0]);
}

/// A model, the tools, alice and bob.
struct Bed {
    model: ScriptedModel,
    runtime: Runtime,
}

impl Bed {
    async fn new(calls: &[(&str, &str)], tools: impl IntoIterator<Item = AnyTool>) -> Self {
        let store = Arc::new(MemoryStore::new([7; 32]));
        store.put_principal(&Principal::admin(alice())).await.unwrap();
        store.put_principal(&Principal::admin("bob".parse().unwrap())).await.unwrap();
        let model = ScriptedModel::new([turn(calls), text("done")]);
        let provider = Provider { zone: Zone::Local, client: Arc::new(model.clone()) };
        let agent = Agent::new("keeper".parse().unwrap(), [ModelRef::parse("script/any").unwrap()]);
        let runtime = Runtime::new(Parts {
            store,
            models: Models::default().with("script".parse().unwrap(), provider),
            tools: Registry::new(tools).unwrap(),
            agents: Agents::new(Enforcement::Enforce, [agent]),
            limits: Limits {
                lease: Duration::from_secs(30),
                parallel_reads: 8,
                poll: Duration::from_secs(1),
            },
            clock: Arc::new(SystemClock),
        });
        Self { model, runtime }
    }

    async fn run(&self) -> Outcome {
        let agent: AgentName = "keeper".parse().unwrap();
        self.runtime.run(RunRequest::new(agent, alice(), "Please")).await.unwrap()
    }

    async fn waiting(&self) -> Waiting {
        match self.run().await {
            Outcome::Waiting(waiting) => *waiting,
            Outcome::Done(finished) => panic!("it should wait: {:?}", finished.output()),
        }
    }

    async fn decide(&self, waiting: &Waiting, decision: Decision) {
        self.runtime.decide(&waiting.id, decision, &"bob".parse().unwrap()).await.unwrap();
        let outcome = self.runtime.drive(waiting.run.id()).await.unwrap();
        assert!(matches!(outcome, Outcome::Done(_)), "{outcome:?}");
    }

    /// What the model was told that its calls came to.
    fn results(&self) -> Vec<String> {
        let told = self.model.requests().pop().unwrap().told;
        told.into_iter()
            .filter_map(|told| if let Told::Result(result) = told { Some(result) } else { None })
            .collect()
    }
}

#[tokio::test]
async fn rule_a5_wrong_arguments_are_refused_by_the_schema_before_anybody_is_asked() {
    let bed = Bed::new(
        &[
            ("page_get", r#"{"id":-7}"#),
            ("page_get", r#"{"id":7,"copies":-2147483649}"#),
            ("page_get", r#"{"id":7,"author":{"name":"B.","age":9}}"#),
            ("page_get", r#"{"id":7}"#),
        ],
        [PageGet.into()],
    )
    .await;
    assert!(matches!(bed.run().await, Outcome::Done(_)));
    let results = bed.results();
    for (result, named) in results.iter().zip(["/id", "/copies", "/author", "Page { id: 7"]) {
        assert!(result.contains(named), "{named}: {result}");
    }
    assert!(
        results[..3].iter().all(|result| result.contains("Not run: the arguments are not valid")),
        "{results:?}"
    );
}

/// A type that knows more than its schema says.
#[tokio::test]
async fn rule_a5_an_argument_that_only_the_type_refuses_is_an_error_result() {
    struct Even;

    #[arguments]
    struct Number {
        n: EvenNumber,
    }

    #[arguments]
    #[serde(try_from = "i64")]
    struct EvenNumber(i64);

    impl TryFrom<i64> for EvenNumber {
        type Error = &'static str;
        fn try_from(n: i64) -> Result<Self, &'static str> {
            if n % 2 == 0 { Ok(Self(n)) } else { Err("it is odd") }
        }
    }

    /// Halve a number.
    #[tool(group = "numbers", effect = idempotent_write)]
    impl Even {
        async fn call(&self, number: Number, _cx: &CallContext) -> Result<ToolOutput, ToolError> {
            Ok((number.n.0 / 2).to_string().into())
        }
    }

    let calls = [("even", r#"{"n":7}"#), ("even", r#"{"n":9223372036854775808}"#), ("even", r#"{"n":8}"#)];
    let bed = Bed::new(&calls, [Even.into()]).await;
    let waiting = bed.waiting().await;
    bed.decide(&waiting, Decision::approve(waiting.digest)).await;
    let results = bed.results();
    assert!(results[0].contains("Not run: the arguments cannot be used: it is odd"), "{results:?}");
    assert!(results[1].contains("greater than the maximum of 9223372036854775807"), "{results:?}");
    assert!(results[2].contains('4'), "{results:?}");
}

#[tokio::test]
async fn rule_a7_preview_precondition_and_idempotency_key_reach_the_function() {
    let reached = Reached::default();
    let (tool, mut spec) = (DropPage { reached: reached.clone() }, drop_page().spec());
    spec.enabled_by_default = true;
    let bed =
        Bed::new(&[("page_drop", r#"{"id":7}"#), ("page_drop", r#"{"id":0}"#)], [On(tool, spec).into()])
            .await;
    let waiting = bed.waiting().await;

    let previews: Vec<_> =
        waiting.record.pending.calls.iter().map(|call| call.preview.clone().unwrap()).collect();
    assert_eq!(previews[0].lines, ["page 7 of alice goes"]);
    assert_eq!(previews[0].precondition, Some(json!({ "version": 3 })));
    assert!(previews[1].failed, "{:?}", previews[1]);

    bed.decide(&waiting, Decision::approve(waiting.digest)).await;
    let lines = reached.lines();
    assert_eq!(lines.len(), 2, "{lines:?}");
    let (before, rest) = lines[0].split_once(" under ").unwrap();
    let (key, seen) = rest.split_once(" after ").unwrap();
    assert_eq!(before, "7 for alice");
    assert_eq!(seen, format!("{:?}", Some(json!({ "version": 3 }))));
    assert!(key.len() > 20 && !lines[1].contains(key), "a key of its own for each call: {lines:?}");
}

/// The same tool, switched on.
struct On(DropPage, countersign::ToolSpec);

#[async_trait::async_trait]
impl Tool for On {
    fn spec(&self) -> countersign::ToolSpec {
        self.1.clone()
    }

    async fn call(&self, arguments: &Arguments, cx: &CallContext) -> Result<ToolOutput, ToolError> {
        Tool::call(&self.0, arguments, cx).await
    }

    async fn preview(
        &self,
        arguments: &Arguments,
        cx: &PreviewContext,
    ) -> Option<Result<ToolPreview, ToolError>> {
        Tool::preview(&self.0, arguments, cx).await
    }
}

#[tokio::test]
async fn rule_r9_the_function_gets_the_models_fields_and_the_persons() {
    let reached = Reached::default();
    let book = BookRoom({
        let reached = reached.clone();
        move |line| reached.note(line)
    });
    let bed = Bed::new(&[("book_room", r#"{"guest":"Berta","nights":9}"#)], [book.into()]).await;
    let waiting = bed.waiting().await;
    let answer = given(&json!({ "until": "Friday", "nights": 2 }));
    bed.decide(&waiting, Decision::answer(waiting.digest, answer)).await;
    assert_eq!(reached.lines(), ["Berta until Friday for Some(2) = Some(2)"]);
}

#[tokio::test]
async fn rule_r9_a_field_of_the_person_is_not_the_models_to_write() {
    let bed = Bed::new(
        &[("book_room", r#"{"guest":"Berta","until":"Monday"}"#)],
        [BookRoom(drop::<String>).into()],
    )
    .await;
    assert!(matches!(bed.run().await, Outcome::Done(_)));
    assert!(bed.results()[0].contains("Not run: the arguments are not valid"), "{:?}", bed.results());
}
