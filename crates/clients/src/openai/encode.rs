//! From the transcript to the body of a Chat Completions request.
//!
//! Invariant: messages are encoded once and only appended to. The body of a later request begins with the
//! bytes of the earlier one up to the end of its messages, and the same messages and offers give the same
//! bytes. Every body is valid for the wire (L3): each call is answered once, in order, before the next
//! message; ids are unique; names are names; arguments are one JSON object.
//!
//! What this wire cannot say:
//! * A result has no mark for errors, so the text of one begins with `Error: `.
//! * A call under a name that is none goes back as `invalid_name`, arguments that are no object as `{}`.
//! * An assistant message with neither text nor calls must have a text; it gets an empty one.
//! * A result of no call cannot be sent and is left out; a call without a result is answered with a sentence
//!   that says so. The runtime does neither; a request stays valid all the same.

use countersign::{
    Arguments, CallId, InputRole, Message, Offer, Opaque, ProposedCall, ProviderName, Reply, ToolName,
    WireIds,
};
use serde_json::Value;

use super::members::Members;

/// What a call is answered with that has no result in the transcript.
const NO_RESULT: &str = "Error: no result of this call is known.";

/// The names in an assistant message that are never taken from the opaque parts, but see [`RAW_CONTENT`].
pub(super) const MESSAGE_NAMES: [&str; 3] = ["role", "content", "tool_calls"];
/// The names in a tool call that are never taken from the opaque parts, but see [`REST_OF_FUNCTION`].
pub(super) const CALL_NAMES: [&str; 3] = ["id", "type", "function"];
/// The names in the `function` of a tool call that are never taken from the opaque parts.
pub(super) const FUNCTION_NAMES: [&str; 2] = ["name", "arguments"];
/// An opaque part of a message under this name is the content as it was sent, when that was a list of parts.
pub(super) const RAW_CONTENT: &str = "content";
/// An opaque part of a call under this name holds the unknown members of its `function` object.
pub(super) const REST_OF_FUNCTION: &str = "function";

/// The beginning of a request, up to the newest message.
#[derive(Debug)]
pub(super) struct Encoder {
    provider: ProviderName,
    ids: WireIds,
    bytes: Vec<u8>,
    /// The offers of the last request, and how they are written: they seldom change within a run.
    tools: (Vec<Offer>, Vec<u8>),
    is_empty: bool,
    awaited: Vec<Awaited>,
}

/// A call of the newest reply that is not answered on the wire yet.
#[derive(Debug)]
struct Awaited {
    call: CallId,
    wire_id: String,
    content: Option<String>,
}

impl Encoder {
    /// No messages yet.
    pub(super) fn new(provider: ProviderName, model: &str) -> Self {
        let mut bytes = br#"{"model":"#.to_vec();
        push_text(&mut bytes, model);
        bytes.extend_from_slice(br#","messages":["#);
        Self {
            ids: WireIds::new(provider.clone()),
            provider,
            bytes,
            tools: (Vec::new(), encoded(&[])),
            is_empty: true,
            awaited: Vec::new(),
        }
    }

    /// Appends the next message.
    pub(super) fn add(&mut self, message: &Message<'_>) {
        match message {
            Message::System(text) => self.plain("system", text),
            Message::Input(input) => match input.role {
                InputRole::User => self.plain("user", &input.text),
                InputRole::Assistant => self.plain("assistant", &input.text),
            },
            Message::Reply(reply) => self.reply(reply),
            Message::LeftOut(reply) => _ = self.ids.assign(reply),
            Message::Result { call, content, is_error } => {
                let prefix = if *is_error { "Error: " } else { "" };
                let open = self.awaited.iter_mut().find(|open| open.call == **call && open.content.is_none());
                if let Some(open) = open {
                    open.content = Some(format!("{prefix}{content}"));
                }
                self.send_results(false);
            }
        }
    }

    /// The body of a request with these offers.
    pub(super) fn body(&mut self, offers: &[Offer]) -> Vec<u8> {
        self.send_results(true);
        if self.tools.0 != offers {
            self.tools = (offers.to_vec(), encoded(offers));
        }
        [&self.bytes[..], &self.tools.1].concat()
    }

    fn plain(&mut self, role: &str, text: &str) {
        self.send_results(true);
        self.begin(role);
        push_text(&mut self.bytes, text);
        self.bytes.push(b'}');
    }

    fn reply(&mut self, reply: &Reply) {
        self.send_results(true);
        let own = reply.provider == self.provider;
        let wire_ids = self.ids.assign(reply);
        self.begin("assistant");
        match (raw_content(reply).filter(|_| own), &reply.text) {
            (Some(raw), _) => self.bytes.extend_from_slice(raw.as_bytes()),
            (None, Some(text)) => push_text(&mut self.bytes, text),
            (None, None) if reply.calls.is_empty() => push_text(&mut self.bytes, ""),
            (None, None) => self.bytes.extend_from_slice(b"null"),
        }
        for (index, (call, wire_id)) in reply.calls.iter().zip(&wire_ids).enumerate() {
            self.bytes.extend_from_slice(if index == 0 { br#","tool_calls":["# } else { b"," });
            self.call(call, wire_id, own);
        }
        if !reply.calls.is_empty() {
            self.bytes.push(b']');
        }
        if own {
            push_opaque(&mut self.bytes, &reply.opaque, &MESSAGE_NAMES);
        }
        self.bytes.push(b'}');
        self.awaited = reply
            .calls
            .iter()
            .zip(wire_ids)
            .map(|(call, wire_id)| Awaited { call: call.id.clone(), wire_id, content: None })
            .collect();
    }

    fn call(&mut self, call: &ProposedCall, wire_id: &str, own: bool) {
        let bytes = &mut self.bytes;
        bytes.extend_from_slice(br#"{"id":"#);
        push_text(bytes, wire_id);
        bytes.extend_from_slice(br#","type":"function","function":{"name":"#);
        let is_name = ToolName::parse(&call.name).is_ok();
        push_text(bytes, if is_name { &call.name } else { "invalid_name" });
        bytes.extend_from_slice(br#","arguments":"#);
        push_text(bytes, sendable_arguments(call.arguments.as_deref()));
        let rest = call.opaque.0.iter().find(|(name, _)| name == REST_OF_FUNCTION).filter(|_| own);
        if let Some(rest) = rest.and_then(|(_, raw)| Members::read(raw)) {
            for (name, raw) in rest.without(&FUNCTION_NAMES) {
                push_member(bytes, name, raw);
            }
        }
        bytes.push(b'}');
        if own {
            push_opaque(bytes, &call.opaque, &CALL_NAMES);
        }
        bytes.push(b'}');
    }

    /// Sends the results that are due: those whose predecessors in the turn are all there, or all.
    fn send_results(&mut self, all: bool) {
        let ready = self.awaited.iter().take_while(|open| all || open.content.is_some()).count();
        for open in self.awaited.drain(..ready).collect::<Vec<_>>() {
            self.begin("tool");
            push_text(&mut self.bytes, open.content.as_deref().unwrap_or(NO_RESULT));
            push_member(&mut self.bytes, "tool_call_id", &Value::from(open.wire_id).to_string());
            self.bytes.push(b'}');
        }
    }

    fn begin(&mut self, role: &str) {
        if !std::mem::replace(&mut self.is_empty, false) {
            self.bytes.push(b',');
        }
        self.bytes.extend_from_slice(br#"{"role":"#);
        push_text(&mut self.bytes, role);
        self.bytes.extend_from_slice(br#","content":"#);
    }
}

/// The end of a body: of its messages, and its tools.
fn encoded(offers: &[Offer]) -> Vec<u8> {
    let mut end = b"]".to_vec();
    for (index, offer) in offers.iter().enumerate() {
        end.extend_from_slice(if index == 0 { br#","tools":["# } else { b"," });
        end.extend_from_slice(br#"{"type":"function","function":{"name":"#);
        push_text(&mut end, offer.name.as_str());
        end.extend_from_slice(br#","description":"#);
        push_text(&mut end, &offer.description);
        end.extend_from_slice(br#","parameters":"#);
        end.extend_from_slice(offer.parameters.to_string().as_bytes());
        end.extend_from_slice(b"}}");
    }
    end.extend_from_slice(if offers.is_empty() { b"}" } else { b"]}" });
    end
}

/// The very text that was received where it is one strict JSON object (A5), else `{}`.
fn sendable_arguments(text: Option<&str>) -> &str {
    text.filter(|text| text.trim_start().starts_with('{') && Arguments::read(Some(text)).is_ok())
        .unwrap_or("{}")
}

fn raw_content(reply: &Reply) -> Option<&str> {
    let (_, raw) = reply.opaque.0.iter().find(|(name, _)| name == RAW_CONTENT)?;
    Some(raw.as_str()).filter(|raw| raw.starts_with('['))
}

fn push_opaque(bytes: &mut Vec<u8>, opaque: &Opaque, reserved: &[&str]) {
    for (name, raw) in opaque.0.iter().filter(|(name, _)| !reserved.contains(&name.as_str())) {
        push_member(bytes, name, raw);
    }
}

/// `,"name":raw`
fn push_member(bytes: &mut Vec<u8>, name: &str, raw: &str) {
    bytes.push(b',');
    push_text(bytes, name);
    bytes.push(b':');
    bytes.extend_from_slice(raw.as_bytes());
}

fn push_text(bytes: &mut Vec<u8>, text: &str) {
    bytes.extend_from_slice(Value::from(text).to_string().as_bytes());
}
