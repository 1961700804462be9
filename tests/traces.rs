//! What somebody sees who collects traces: spans from the real program, in OTLP, and nothing of what was said.

use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use serde_json::json;

use crate::support::collector::{Collector, said, shown};
use crate::support::model::{Server, calls, says};
use crate::support::serve::Serve;
use crate::support::tool::{Comes, ToolServer};
use crate::support::{Done, Folder, declared, kinds, text};

/// A folder whose one tool writes; the model asks for it, and for a tool that there is not.
fn bench(more: &str) -> (Folder, Server, ToolServer) {
    let turn = calls(&[("page", json!({ "id": 1, "x": "ARGUMENT" })), ("SECRET_made_up", json!({}))]);
    let model = Server::start(vec![turn, says("the SECRET answer")]);
    let tool = ToolServer::start(Comes::Answer(200, b"{\"content\":\"the SECRET result\"}".to_vec()));
    let how = format!("http = \"{}\"\npreview = \"{}\"", tool.url, tool.url);
    let folder = Folder::new();
    folder.configure(model.url(), &declared("page", &how, "write", ""));
    folder.configure_more(more);
    (folder, model, tool)
}

fn telemetry(collector: &Collector) -> String {
    format!("[telemetry]\notlp = \"{}\"\n", collector.url)
}

fn names(spans: &[Span]) -> Vec<&str> {
    spans.iter().map(|span| span.name.as_str()).collect()
}

fn is_said(span: &Span, wanted: &[(&str, &str)]) {
    for (name, value) in wanted {
        assert_eq!(said(span, name).as_deref(), Some(*value), "{name} of {span:#?}");
    }
}

/// Nothing of what was said, asked or answered, and nobody's name, has arrived.
fn nothing_was_told(collector: &Collector) {
    for batch in collector.batches() {
        let heard = String::from_utf8_lossy(&batch.body).into_owned();
        for never in ["SECRET", "ARGUMENT", "ann", "bob", "Bearer"] {
            assert!(!heard.contains(never), "rule S5: {never} in {heard}");
        }
    }
}

#[test]
fn rule_r5_rule_s5_a_pause_lies_between_two_traces_of_which_the_second_points_to_the_first() {
    let collector = Collector::start();
    let (folder, _model, _tool) = bench(&telemetry(&collector));
    folder.run(&["run", "the SECRET task"]).expect(3);
    // The process has ended, and has handed over what it had.
    let first = collector.drive("parked");
    let (run, pending) = (folder.newest_run(), folder.open());
    let [agent, chat] = &first[..] else { panic!("{:?}", names(&first)) };
    assert_eq!((agent.name.as_str(), chat.name.as_str()), ("invoke_agent default", "chat scripted"));
    assert_eq!((agent.kind(), chat.kind()), (SpanKind::Internal, SpanKind::Client));
    assert_eq!((&agent.parent_span_id[..], &chat.parent_span_id), (&[][..], &agent.span_id));
    assert!(
        agent.start_time_unix_nano <= chat.start_time_unix_nano
            && chat.end_time_unix_nano <= agent.end_time_unix_nano
    );
    is_said(
        agent,
        &[
            ("gen_ai.operation.name", "invoke_agent"),
            ("gen_ai.agent.name", "default"),
            ("gen_ai.conversation.id", text(&run["id"])),
            ("countersign.run.status", "waiting_for_approval"),
            ("countersign.pending.id", text(&pending["id"])),
        ],
    );
    is_said(
        chat,
        &[
            ("gen_ai.operation.name", "chat"),
            ("gen_ai.provider.name", "stub"),
            ("gen_ai.request.model", "scripted"),
            ("gen_ai.usage.input_tokens", "100"),
            ("gen_ai.usage.output_tokens", "10"),
            ("gen_ai.response.finish_reasons", "tool_calls"),
        ],
    );
    let opened = agent.events.iter().find(|event| event.name == "countersign.pending.opened").unwrap();
    assert_eq!(
        shown(&opened.attributes[0].value.as_ref().unwrap().value).as_deref(),
        Some(text(&pending["id"]))
    );
    assert!(agent.links.is_empty());

    // Another process.
    folder.decide("approve", &["--reason", "a SECRET reason"]).expect(0);
    let second = collector.drive("ended");
    let [again, tool, chat] = &second[..] else { panic!("{:?}", names(&second)) };
    assert_eq!(names(&second), ["invoke_agent default", "execute_tool page", "chat scripted"]);
    assert_ne!(again.trace_id, agent.trace_id);
    assert!(again.parent_span_id.is_empty());
    let [link] = &again.links[..] else { panic!("{:?}", again.links) };
    assert_eq!((&link.trace_id, &link.span_id), (&agent.trace_id, &agent.span_id));
    for span in [tool, chat] {
        assert_eq!(span.parent_span_id, again.span_id);
    }
    is_said(again, &[("gen_ai.conversation.id", text(&run["id"])), ("countersign.run.status", "completed")]);
    is_said(
        tool,
        &[
            ("gen_ai.operation.name", "execute_tool"),
            ("gen_ai.tool.name", "page"),
            ("gen_ai.tool.call.id", text(&pending["calls"][0]["id"])),
            ("gen_ai.tool.type", "function"),
            ("countersign.tool.effect", "write"),
            ("countersign.call.result", "ok"),
            ("countersign.pending.id", text(&pending["id"])),
        ],
    );
    assert_eq!(tool.status.as_ref().unwrap().code(), StatusCode::Unset);
    is_said(chat, &[("gen_ai.response.finish_reasons", "stop")]);
    // What was proposed and never ran can be seen, without the name that the model made up.
    let not_made: Vec<_> =
        again.events.iter().filter(|event| event.name == "countersign.call.not_made").collect();
    let [refused] = not_made[..] else { panic!("{:#?}", again.events) };
    let told: Vec<_> =
        refused.attributes.iter().map(|said| shown(&said.value.as_ref().unwrap().value)).collect();
    assert_eq!(told[1..], [Some("refused".to_owned()), Some("unknown_tool".to_owned())]);
    nothing_was_told(&collector);
}

#[test]
fn a_denial_is_seen_and_a_service_hands_over_what_it_has_when_it_ends() {
    let collector = Collector::start();
    let (folder, _model, _tool) = bench(&format!("{}headers_env = \"COLLECTOR\"\n", telemetry(&collector)));
    let mut serve = Serve::start_with(&folder, &[("COLLECTOR", "x-key=the%20key")]);
    let alice = serve.client(&folder, "alice", &[]);
    let caller = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";
    let body = json!({ "input": "the SECRET task" }).to_string();
    let run = alice.ask("POST", "/v1/runs", &[("Prefer", "wait=30"), ("traceparent", caller)], Some(&body));
    let run = run.expect(201);
    // Who started it is pointed to, and not more: a run may wait for days.
    let first = &collector.drive("parked")[0];
    let [link] = &first.links[..] else { panic!("{first:#?}") };
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    assert_eq!(format!("00-{}-{}-00", hex(&link.trace_id), hex(&link.span_id)), caller);
    assert_ne!(first.trace_id, link.trace_id);
    alice.decide(&run["pending"], json!({ "verdict": "deny", "reason": "a SECRET reason" })).expect(200);
    alice.run(text(&run["id"]));
    serve.terminate();
    serve.ended();
    let second = &collector.drive("ended")[0];
    assert_eq!((&second.links[0].trace_id, &second.links[0].span_id), (&first.trace_id, &first.span_id));
    let denied = second.events.iter().any(|event| {
        let told = |said: &opentelemetry_proto::tonic::common::v1::KeyValue| {
            said.value.as_ref().and_then(|value| shown(&value.value))
        };
        event.name == "countersign.call.not_made"
            && event.attributes.iter().any(|said| told(said).as_deref() == Some("denied"))
    });
    assert!(denied, "{:#?}", second.events);
    for batch in collector.batches() {
        assert!(batch.head.starts_with("POST /v1/traces HTTP/1.1\r\n"), "{}", batch.head);
        assert!(batch.head.contains("x-key: the key\r\n"), "{}", batch.head);
        assert!(batch.head.contains("content-type: application/x-protobuf\r\n"), "{}", batch.head);
    }
    assert!(!serve.said().contains("the key"), "{}", serve.said());
    nothing_was_told(&collector);
}

#[test]
fn a_collector_that_is_dead_or_deaf_hinders_no_run() {
    let refusing =
        Collector::answering(|| "HTTP/1.1 401 X\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    for collector in [Collector::gone(), Collector::hanging(), refusing] {
        let (folder, _model, _tool) = bench(&telemetry(&collector));
        let ran = folder.run(&["run", "x"]).expect(3);
        let told: Vec<&str> = ran.err.lines().filter(|line| line.contains("collector")).collect();
        assert!(matches!(told[..], [line] if line.contains("spans are lost")), "{ran:?}");
        folder.decide("approve", &[]).expect(0);
        let run = folder.newest_run();
        assert_eq!(run["status"], "completed");
        // And nothing is stored for it alone.
        let untraced = bench("").0;
        untraced.run(&["run", "x"]).expect(3);
        untraced.decide("approve", &[]).expect(0);
        let (traced, plain) =
            (folder.events(text(&run["id"])), untraced.events(text(&untraced.newest_run()["id"])));
        assert_eq!(kinds(&traced), kinds(&plain));
    }
}

#[test]
fn what_is_lost_is_counted_and_said_once() {
    let refusing =
        Collector::answering(|| "HTTP/1.1 400 X\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    let (folder, _model, _tool) = bench(&telemetry(&refusing));
    let serve = Serve::start(&folder);
    let alice = serve.client(&folder, "alice", &[]);
    for count in 1..=2 {
        alice.start("x");
        let wanted = format!("countersign_spans_total{{outcome=\"lost\"}} {}", count * 2);
        crate::support::until(&wanted, || {
            serve.stranger().get("/metrics").body.lines().any(|line| line == wanted).then_some(())
        });
    }
    assert_eq!(serve.said().matches("spans are lost").count(), 1, "{}", serve.said());
}

#[test]
fn nothing_is_sent_unless_it_is_configured() {
    let collector = Collector::start();
    let (folder, _model, _tool) = bench("");
    let mut command = folder.command(&["run", "x"]);
    // What other programs go by is not asked.
    command.env("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.url).env("OTEL_TRACES_EXPORTER", "otlp");
    assert_eq!(command.output().unwrap().status.code(), Some(3));
    assert!(collector.batches().is_empty());
}

#[test]
fn a_collector_that_cannot_be_told_is_a_wrong_configuration() {
    let telemetry = telemetry(&Collector::start());
    let (folder, _model, _tool) = bench(&format!("{telemetry}headers_env = \"COLLECTOR\"\n"));
    for command in [&["run", "x"][..], &["serve"]] {
        let refused = folder.run(command).expect(2);
        let sentence = refused.one_sentence();
        assert!(sentence.contains("telemetry.headers_env: the variable COLLECTOR is not set"), "{sentence}");
    }
    // A shell that only checks need not have it.
    let checked = folder.run(&["config", "check"]).expect(0);
    assert!(checked.err.contains("the variable COLLECTOR with what the collector"), "{checked:?}");
    for command in [&["run", "x"][..], &["serve"], &["config", "check"]] {
        let mut wrong = folder.command(command);
        let wrong = Done::from(wrong.env("COLLECTOR", "a SECRET").output().unwrap()).expect(2);
        assert!(wrong.one_sentence().contains("COLLECTOR cannot be used"), "{wrong:?}");
        assert!(!wrong.err.contains("SECRET"), "rule S5: {wrong:?}");
    }
    // Whoever decides need not have it either, and is told what that means.
    let mut run = folder.command(&["run", "x"]);
    Done::from(run.env("COLLECTOR", "x-key=y").output().unwrap()).expect(3);
    let approved = folder.decide("approve", &[]).expect(0);
    assert!(approved.err.contains("note: what is done here is not traced"), "{approved:?}");
}
