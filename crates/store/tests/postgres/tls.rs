//! The way to a database by the network: in TLS, checked in full, or not at all (S5).

use std::path::PathBuf;
use std::sync::Arc;

use countersign::SystemClock;
use countersign_store::{MasterKey, OpenError, PostgresAddress, PostgresStore};

use crate::server::{Server, certified, server};
use crate::support::KEY;

/// The address of a database by the network, under a name of this machine.
fn remote(server: &Server, host: &str, database: &str, parameters: &str) -> String {
    format!("postgres://countersign@{host}:{}/{database}?{parameters}", server.port)
}

/// The certificate of who certified the server.
fn root(server: &Server) -> PathBuf {
    server.folder.join("root.pem")
}

async fn open(address: &str) -> Result<PostgresStore, OpenError> {
    let address = PostgresAddress::parse(address).unwrap();
    PostgresStore::open(address, MasterKey::new(KEY), Arc::new(SystemClock)).await
}

/// Everything that an error says, causes included.
fn all(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(|| error.to_string(), |source| format!("{error}: {}", all(source)))
}

#[tokio::test]
async fn rule_s5_a_server_that_somebody_trusted_certified_is_spoken_to() {
    let server = server();
    let database = server.database(None);
    let trusted = format!("sslrootcert={}", root(server).display());
    let store = open(&remote(server, "localhost", &database, &trusted)).await.unwrap();
    let encrypted = "SELECT count(*) > 0 AND bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
                     WHERE client_addr IS NOT NULL AND datname = current_database()";
    assert_eq!(server.ask(&database, encrypted).trim(), "t", "and nothing of it unencrypted");
    drop(store);
}

#[tokio::test]
async fn rule_s5_a_server_that_cannot_prove_who_it_is_gets_no_word() {
    let server = server();
    let database = server.database(None);
    let folder = tempfile::tempdir().unwrap();
    let other = folder.path().join("other.pem");
    certified(&other, &folder.path().join("unused.pem"), &folder.path().join("unused.key"));
    let root = root(server);
    for (host, parameters, why) in [
        ("localhost", "sslmode=require".to_owned(), "nobody this machine trusts"),
        ("localhost", format!("sslrootcert={}", other.display()), "another authority"),
        ("127.0.0.1", format!("sslrootcert={}", root.display()), "another name"),
        (
            "127.0.0.1",
            format!("sslmode=verify-ca&sslrootcert={}", root.display()),
            "another name, in any mode",
        ),
    ] {
        let refused = open(&remote(server, host, &database, &parameters)).await.unwrap_err();
        let words = all(&refused);
        assert!(words.to_lowercase().contains("certificate"), "{why}: {words}");
    }
    let seen = server
        .ask(&database, "SELECT count(*) FROM information_schema.schemata WHERE schema_name = 'countersign'");
    assert_eq!(seen.trim(), "0", "nothing was asked of it");
}
