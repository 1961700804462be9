//! The model where no configuration names one: what the environment and this machine offer.
//!
//! Invariant: what comes with a key from the environment is `external_global`; only what answers on this very
//! machine, and the script, are `local`. Nothing is sent anywhere but to the loopback address.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use countersign::{ModelRef, NotAName, ProviderName, Zone};
use countersign_clients::{DEMO_MODEL, DEMO_PROVIDER};

use crate::config::{Kind, Provider};
use crate::environment::Environment;

/// The variable with the key of OpenAI.
const OPENAI_KEY: &str = "OPENAI_API_KEY";
const OPENAI_URL: &str = "https://api.openai.com/v1";
/// Small, cheap, and able to call tools.
const OPENAI_MODEL: &str = "gpt-5-mini";
const OLLAMA: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 11434);
const OLLAMA_URL: &str = "http://127.0.0.1:11434/v1";
/// A server on this machine answers at once or is not there.
const OLLAMA_PATIENCE: Duration = Duration::from_millis(300);
/// More than a list of models is long.
const OLLAMA_ANSWER_MAX: u64 = 1024 * 1024;

/// The providers that work without a configuration.
pub(crate) fn providers(environment: &Environment) -> Result<Vec<Provider>, NotAName> {
    let provider = |name: &str, kind, zone| {
        Ok(Provider { name: ProviderName::parse(name)?, line: 0, kind, zone: Some(zone) })
    };
    let mut providers = vec![demo()?];
    if environment.get(OPENAI_KEY).is_some() {
        let kind = Kind::OpenAi { base_url: OPENAI_URL.to_owned(), api_key_env: Some(OPENAI_KEY.to_owned()) };
        providers.push(provider("openai", kind, Zone::ExternalGlobal)?);
    }
    let kind = Kind::OpenAi { base_url: OLLAMA_URL.to_owned(), api_key_env: None };
    providers.push(provider("ollama", kind, Zone::Local)?);
    Ok(providers)
}

/// The script as a provider: always at hand.
pub(crate) fn demo() -> Result<Provider, NotAName> {
    Ok(Provider {
        name: ProviderName::parse(DEMO_PROVIDER)?,
        line: 0,
        kind: Kind::Demo,
        zone: Some(Zone::Local),
    })
}

/// The model that was asked for, `PROVIDER/MODEL` or just `demo`.
pub(crate) fn named(text: &str) -> Result<ModelRef, NotAName> {
    if text == DEMO_PROVIDER { demo_model() } else { ModelRef::parse(text) }
}

/// The first model at hand: `COUNTERSIGN_MODEL`, a key of OpenAI, an Ollama on this machine, the script.
pub(crate) fn model(environment: &Environment) -> Result<ModelRef, NotAName> {
    if let Some(wanted) = environment.get("COUNTERSIGN_MODEL") {
        return named(wanted);
    }
    if environment.get(OPENAI_KEY).is_some() {
        return ModelRef::parse(&format!("openai/{OPENAI_MODEL}"));
    }
    match ollama_model().map(|model| ModelRef::parse(&format!("ollama/{model}"))) {
        Some(Ok(model)) => Ok(model),
        Some(Err(_)) | None => demo_model(),
    }
}

fn demo_model() -> Result<ModelRef, NotAName> {
    ModelRef::parse(&format!("{DEMO_PROVIDER}/{DEMO_MODEL}"))
}

/// The first model of an Ollama on this machine, if one answers.
fn ollama_model() -> Option<String> {
    let mut stream = TcpStream::connect_timeout(&OLLAMA, OLLAMA_PATIENCE).ok()?;
    stream.set_read_timeout(Some(OLLAMA_PATIENCE)).ok()?;
    stream.write_all(b"GET /api/tags HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n").ok()?;
    let mut answer = Vec::new();
    // Whoever keeps the connection open has said enough by then.
    _ = stream.take(OLLAMA_ANSWER_MAX).read_to_end(&mut answer);
    first_model(&String::from_utf8(answer).ok()?)
}

fn first_model(answer: &str) -> Option<String> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    head.lines().next()?.contains(" 200").then_some(())?;
    let body: serde_json::Value = serde_json::from_str(body).ok()?;
    Some(body.get("models")?.get(0)?.get("name")?.as_str()?.to_owned())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_first_model_at_hand_is_chosen() {
        let chosen = |variables: &[(&str, &str)]| {
            model(&Environment::of(Path::new("/"), variables)).unwrap().to_string()
        };
        assert_eq!(chosen(&[("COUNTERSIGN_MODEL", "demo"), ("OPENAI_API_KEY", "k")]), "demo/tour");
        assert_eq!(chosen(&[("COUNTERSIGN_MODEL", "ollama/a/b")]), "ollama/a/b");
        assert_eq!(chosen(&[("OPENAI_API_KEY", "k")]), "openai/gpt-5-mini");
        assert!(named("nonsense").is_err());
    }

    #[test]
    fn rule_p6_keys_of_the_environment_are_external() {
        let with_key = providers(&Environment::of(Path::new("/"), &[("OPENAI_API_KEY", "k")])).unwrap();
        let zones: Vec<_> = with_key.iter().map(|provider| (provider.name.as_str(), provider.zone)).collect();
        assert_eq!(
            zones,
            [
                ("demo", Some(Zone::Local)),
                ("openai", Some(Zone::ExternalGlobal)),
                ("ollama", Some(Zone::Local))
            ]
        );
    }

    #[test]
    fn the_first_model_of_a_list_is_read() {
        let answer =
            "HTTP/1.0 200 OK\r\nX: y\r\n\r\n{\"models\":[{\"name\":\"llama3:8b\"},{\"name\":\"b\"}]}";
        assert_eq!(first_model(answer).as_deref(), Some("llama3:8b"));
        assert_eq!(first_model("HTTP/1.0 404 Not Found\r\n\r\n{}"), None);
        assert_eq!(first_model("HTTP/1.0 200 OK\r\n\r\n{\"models\":[]}"), None);
    }
}
