//! Spans as OTLP has them. The only place that knows its messages.

use jiff::Timestamp;
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, ArrayValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::span::{Event, Link, SpanKind as WireKind};
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span as WireSpan, Status};
use prost::Message as _;

use super::span::{AttributeValue, Attributes, Span, SpanKind};

/// In the flags of a span: it was sampled.
const SAMPLED: u32 = 1;

/// A request that hands over these spans of a process that is this.
pub(super) fn request(resource: &Attributes, spans: &[Span]) -> ExportTraceServiceRequest {
    let scope = InstrumentationScope {
        name: "countersign".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..InstrumentationScope::default()
    };
    let spans =
        ScopeSpans { scope: Some(scope), spans: spans.iter().map(span).collect(), ..ScopeSpans::default() };
    let resource = Resource { attributes: attributes(resource), ..Resource::default() };
    let spans =
        ResourceSpans { resource: Some(resource), scope_spans: vec![spans], ..ResourceSpans::default() };
    ExportTraceServiceRequest { resource_spans: vec![spans] }
}

/// How many spans an answer says were not taken. What cannot be read says nothing.
pub(super) fn rejected(answer: &[u8]) -> u64 {
    let answer = ExportTraceServiceResponse::decode(answer).unwrap_or_default();
    answer.partial_success.map_or(0, |partly| u64::try_from(partly.rejected_spans).unwrap_or(0))
}

fn span(span: &Span) -> WireSpan {
    let kind = match span.kind {
        SpanKind::Internal => WireKind::Internal,
        SpanKind::Client => WireKind::Client,
    };
    let events = span.events.iter().map(|event| Event {
        time_unix_nano: nanoseconds(event.at),
        name: event.name.to_owned(),
        attributes: attributes(&event.attributes),
        ..Event::default()
    });
    let links = span.links.iter().map(|link| Link {
        trace_id: link.to.trace.to_vec(),
        span_id: link.to.span.to_vec(),
        attributes: attributes(&link.attributes),
        ..Link::default()
    });
    let code = if span.failed { StatusCode::Error } else { StatusCode::Unset };
    WireSpan {
        trace_id: span.context.trace.to_vec(),
        span_id: span.context.span.to_vec(),
        parent_span_id: span.parent.map(|parent| parent.span.to_vec()).unwrap_or_default(),
        flags: SAMPLED,
        name: span.name.clone(),
        kind: kind.into(),
        start_time_unix_nano: nanoseconds(span.began),
        end_time_unix_nano: nanoseconds(span.ended),
        attributes: attributes(&span.attributes),
        events: events.collect(),
        links: links.collect(),
        status: Some(Status { code: code.into(), ..Status::default() }),
        ..WireSpan::default()
    }
}

/// Of a moment before 1970, which no clock of ours shows, there is none.
fn nanoseconds(at: Timestamp) -> u64 {
    u64::try_from(at.as_nanosecond()).unwrap_or(0)
}

fn attributes(said: &Attributes) -> Vec<KeyValue> {
    let text = |text: &String| AnyValue { value: Some(Value::StringValue(text.clone())) };
    let value = |said: &AttributeValue| match said {
        AttributeValue::Text(said) => text(said),
        AttributeValue::Texts(said) => AnyValue {
            value: Some(Value::ArrayValue(ArrayValue { values: said.iter().map(text).collect() })),
        },
        AttributeValue::Count(count) => {
            AnyValue { value: Some(Value::IntValue(i64::try_from(*count).unwrap_or(i64::MAX))) }
        }
    };
    let pair = |(key, said): &(&str, AttributeValue)| KeyValue {
        key: (*key).to_owned(),
        value: Some(value(said)),
        ..KeyValue::default()
    };
    said.iter().map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::super::span::tests::{CONTEXT, LAST, span as sample};
    use super::*;

    #[test]
    fn a_span_is_on_the_wire_what_it_says() {
        let bytes = request(&vec![("service.name", "countersign".into())], &[sample()]).encode_to_vec();
        assert!(bytes.ends_with(LAST));
        let read = ExportTraceServiceRequest::decode(&bytes[..]).unwrap();
        let [all] = &read.resource_spans[..] else { panic!("{read:?}") };
        assert_eq!(all.resource.as_ref().unwrap().attributes[0].key, "service.name");
        let span = &all.scope_spans[0].spans[0];
        assert_eq!((&span.trace_id[..], &span.span_id[..]), (&CONTEXT.trace[..], &CONTEXT.span[..]));
        assert_eq!((&span.parent_span_id[..], span.name.as_str()), (&[2; 8][..], "chat m"));
        assert_eq!(
            (span.kind(), span.status.as_ref().unwrap().code()),
            (WireKind::Client, StatusCode::Error)
        );
        assert_eq!((span.start_time_unix_nano, span.end_time_unix_nano), (1_000_000_000, 2_000_000_000));
        let keys: Vec<&str> = span.attributes.iter().map(|said| said.key.as_str()).collect();
        assert_eq!(keys, ["words", "word", "count"]);
        assert_eq!(span.attributes[2].value.as_ref().unwrap().value, Some(Value::IntValue(7)));
        assert_eq!((span.events[0].name.as_str(), span.events[0].time_unix_nano), ("retry", 1_000_000_000));
        assert_eq!((&span.links[0].trace_id[..], &span.links[0].span_id[..]), (&[3; 16][..], &[4; 8][..]));
    }
}
