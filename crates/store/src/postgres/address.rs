//! Where a PostgreSQL is, and whether the way there must be encrypted.
//!
//! Invariant: TLS is decided here, before anything is sent, and never given up on the way. A socket of this
//! machine and the loopback interface need none; to every other host it is used, with the certificate and the
//! name checked, unless the address says `sslmode=disable`. Modes that may fall back are refused. An address
//! holds no password.

use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;

use percent_encoding::percent_decode_str;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use rustls_platform_verifier::BuilderVerifierExt;
use tokio_postgres::config::{Host, SslMode};

/// The address of a PostgreSQL database.
#[derive(Clone)]
pub struct PostgresAddress {
    /// What it is called: the address without its parameters.
    place: String,
    config: tokio_postgres::Config,
    tls: Option<Trust>,
}

/// Whose certificates are good.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Trust {
    /// Those that this machine trusts.
    System,
    /// Those that hang from the certificates in this file.
    File(String),
}

/// Why a text is no address.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotAnAddress {
    /// It does not read `postgres://…`.
    #[error("it is not an address of PostgreSQL, such as postgres://user@host/database")]
    Form(#[source] Option<tokio_postgres::Error>),
    /// It names no database.
    #[error("it names no database: add /NAME")]
    NoDatabase,
    /// It names no host.
    #[error("it names no host: add one, or ?host=/FOLDER for the socket of this machine")]
    NoHost,
    /// Secrets come from the environment.
    #[error("a password does not belong here: set PGPASSWORD in the environment")]
    Password,
    /// A mode that may fall back to no encryption, or that nobody knows.
    #[error(
        "sslmode must be disable, require, verify-ca or verify-full, of which the last three mean the same: TLS, checked in full"
    )]
    Mode,
    /// A parameter with which TLS would not be what this module promises.
    #[error("the parameter {0} is not supported")]
    Parameter(String),
    /// TLS is switched off, and a certificate is named for it.
    #[error("sslrootcert is of no use without TLS")]
    NoTls,
}

/// Why TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
#[error("TLS cannot be set up for the database: {0}")]
pub(super) struct TlsError(String);

impl PostgresAddress {
    /// Reads an address.
    ///
    /// # Errors
    /// [`NotAnAddress`].
    pub fn parse(address: &str) -> Result<Self, NotAnAddress> {
        if !["postgres://", "postgresql://"].iter().any(|scheme| address.starts_with(scheme)) {
            return Err(NotAnAddress::Form(None));
        }
        let (place, parameters) = address.split_once('?').unwrap_or((address, ""));
        let (mut mode, mut root, mut rest) = (None, None, Vec::new());
        for parameter in parameters.split('&').filter(|parameter| !parameter.is_empty()) {
            match parameter.split_once('=') {
                Some(("sslmode", value)) => mode = Some(value),
                Some(("sslrootcert", value)) => {
                    root = Some(percent_decode_str(value).decode_utf8_lossy().into_owned());
                }
                Some((name, _)) if name.starts_with("ssl") => {
                    return Err(NotAnAddress::Parameter(name.to_owned()));
                }
                Some(("options" | "application_name", _)) | None => {
                    let name = parameter.split('=').next().unwrap_or_default();
                    return Err(NotAnAddress::Parameter(name.to_owned()));
                }
                Some(_) => rest.push(parameter),
            }
        }
        let bare = if rest.is_empty() { place.to_owned() } else { format!("{place}?{}", rest.join("&")) };
        let mut config =
            tokio_postgres::Config::from_str(&bare).map_err(|error| NotAnAddress::Form(Some(error)))?;
        if config.get_password().is_some() {
            return Err(NotAnAddress::Password);
        }
        if config.get_dbname().is_none_or(str::is_empty) {
            return Err(NotAnAddress::NoDatabase);
        }
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            return Err(NotAnAddress::NoHost);
        }
        let trust = |root: Option<String>| root.map_or(Trust::System, Trust::File);
        let tls = match mode {
            Some("disable") if root.is_some() => return Err(NotAnAddress::NoTls),
            Some("disable") => None,
            Some("require" | "verify-ca" | "verify-full") => Some(trust(root)),
            Some(_) => return Err(NotAnAddress::Mode),
            // Nobody asked, but a certificate was named for it.
            None if root.is_some() => Some(trust(root)),
            None if stays_here(&config) => None,
            None => Some(Trust::System),
        };
        config.ssl_mode(if tls.is_some() { SslMode::Require } else { SslMode::Disable });
        Ok(Self { place: place.to_owned(), config, tls })
    }

    /// With the password that the environment holds.
    #[must_use]
    pub fn with_password(mut self, password: &str) -> Self {
        self.config.password(password);
        self
    }

    /// The address without its parameters; it holds no password.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// Whether the connection is encrypted.
    pub fn is_encrypted(&self) -> bool {
        self.tls.is_some()
    }

    pub(super) fn config(&self) -> &tokio_postgres::Config {
        &self.config
    }

    /// How TLS is spoken; absent where it is not.
    pub(super) fn tls(&self) -> Result<Option<ClientConfig>, TlsError> {
        let failed = |error: &dyn std::fmt::Display| TlsError(error.to_string());
        let Some(trust) = &self.tls else { return Ok(None) };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| failed(&error))?;
        let builder = match trust {
            Trust::System => builder.with_platform_verifier().map_err(|error| failed(&error))?,
            Trust::File(file) => builder.with_root_certificates(roots(file)?),
        };
        Ok(Some(builder.with_no_client_auth()))
    }
}

impl std::fmt::Debug for PostgresAddress {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "PostgresAddress({})", self.place)
    }
}

impl PartialEq for PostgresAddress {
    fn eq(&self, other: &Self) -> bool {
        self.config == other.config && self.tls == other.tls
    }
}

fn roots(file: &str) -> Result<RootCertStore, TlsError> {
    let failed = |why: String| TlsError(format!("the certificates in {file}: {why}"));
    let mut roots = RootCertStore::empty();
    let certificates = CertificateDer::pem_file_iter(file).map_err(|error| failed(error.to_string()))?;
    for certificate in certificates {
        let certificate = certificate.map_err(|error| failed(error.to_string()))?;
        roots.add(certificate).map_err(|error| failed(error.to_string()))?;
    }
    if roots.is_empty() { Err(failed("there are none".to_owned())) } else { Ok(roots) }
}

/// Whether no way leads out of this machine.
fn stays_here(config: &tokio_postgres::Config) -> bool {
    let is_here = |host: &Host| match host {
        Host::Unix(_) => true,
        Host::Tcp(name) => {
            name == "localhost" || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
        }
    };
    // Where addresses are given, they are what is connected to.
    if config.get_hostaddrs().is_empty() {
        config.get_hosts().iter().all(is_here)
    } else {
        config.get_hostaddrs().iter().all(IpAddr::is_loopback)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tls(address: &str) -> Result<Option<Trust>, String> {
        PostgresAddress::parse(address).map(|address| address.tls).map_err(|error| error.to_string())
    }

    #[test]
    fn rule_s5_a_way_out_of_this_machine_is_encrypted_unless_the_address_says_otherwise() {
        for here in [
            "postgres://u@localhost/d",
            "postgres://u@127.0.0.1:5433/d",
            "postgres://u@[::1]/d",
            "postgres://u@%2Fvar%2Frun%2Fpostgresql/d",
            "postgresql:///d?host=/var/run/postgresql",
            "postgres://u@db.example/d?sslmode=disable",
            "postgres://u@db.example/d?hostaddr=127.0.0.1",
        ] {
            assert_eq!(tls(here), Ok(None), "{here}");
        }
        for there in [
            "postgres://u@db.example/d",
            "postgres://u@10.0.0.7/d",
            "postgres://u@localhost,db.example/d",
            "postgres://u@localhost/d?hostaddr=10.0.0.7",
            "postgres://u@localhost/d?sslmode=require",
            "postgres://u@db.example/d?sslmode=verify-full&connect_timeout=3",
            "postgres://u@localhost.example/d",
        ] {
            assert_eq!(tls(there), Ok(Some(Trust::System)), "{there}");
        }
        let file = tls("postgres://u@localhost/d?sslrootcert=%2Fa%20b.pem");
        assert_eq!(file, Ok(Some(Trust::File("/a b.pem".to_owned()))));
        let address = PostgresAddress::parse("postgres://u@db.example/d").unwrap();
        assert_eq!(address.config().get_ssl_mode(), SslMode::Require, "no falling back");
    }

    #[test]
    fn an_address_that_would_not_be_kept_to_is_refused() {
        for (address, expected) in [
            ("sqlite:x", "it is not an address"),
            ("postgres://u@h:port/d", "it is not an address"),
            ("postgres://u@h", "it names no database"),
            ("postgres:///d", "it names no host"),
            ("postgres://u:secret@h/d", "PGPASSWORD"),
            ("postgres://u@h/d?sslmode=prefer", "sslmode must be"),
            ("postgres://u@h/d?sslmode=allow", "sslmode must be"),
            ("postgres://u@h/d?sslmode=DISABLE", "sslmode must be"),
            ("postgres://u@h/d?sslcert=x", "the parameter sslcert is not supported"),
            ("postgres://u@h/d?sslmode=disable&sslrootcert=x", "of no use without TLS"),
            ("postgres://u@h/d?options=-csearch_path%3Dx", "the parameter options is not supported"),
        ] {
            let refused = PostgresAddress::parse(address).unwrap_err().to_string();
            assert!(refused.contains(expected), "{address}: {refused}");
            assert!(!refused.contains("secret"), "{refused}");
        }
    }

    #[test]
    fn rule_s5_an_address_never_shows_the_password() {
        let address = PostgresAddress::parse("postgres://u@h/d?connect_timeout=3").unwrap();
        let address = address.with_password("secret");
        assert_eq!(address.config().get_password(), Some(&b"secret"[..]));
        assert_eq!(format!("{address:?}"), "PostgresAddress(postgres://u@h/d)");
        assert_eq!(address.place(), "postgres://u@h/d");
    }

    #[test]
    fn certificates_that_are_not_there_are_refused_before_anything_is_sent() {
        let address = PostgresAddress::parse("postgres://u@h/d?sslrootcert=/nowhere.pem").unwrap();
        assert!(address.tls().unwrap_err().to_string().contains("/nowhere.pem"));
    }
}
