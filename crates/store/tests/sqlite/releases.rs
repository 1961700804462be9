//! Beside a newer countersign on one file, and after it.

use countersign::contract::sample::{at, start};
use countersign_store::Upkeep;

use crate::both::{ADDS, CHANGES, FOR_ITS_OWN, LEASE, claim, goes_on, is_refused, stands_still};
use crate::support::{KEY, Place};

/// Does what a newer program does when it opens the file.
fn migrate(place: &Place, statements: &str, schema: u32) {
    let newer = place.meddle();
    newer.execute_batch(&format!("BEGIN; {statements}; PRAGMA user_version = {schema}; COMMIT")).unwrap();
}

#[tokio::test]
async fn rule_r2_the_release_before_goes_on_when_the_next_one_has_added_to_the_file() {
    let place = Place::new();
    let running = place.open();
    goes_on(&running, 1).await;
    let held = {
        start(&running, 9).await;
        claim(&running, 9).await.unwrap().unwrap()
    };
    let next = running.schema_known() + 1;
    migrate(&place, ADDS, next);
    assert!(countersign::Store::heartbeat(&running, &held, at(10), LEASE).await.unwrap());
    goes_on(&running, 11).await;
    // It may also be started again, or be gone back to.
    let again = place.open();
    assert_eq!((again.schema_version(), again.schema_known()), (next, next - 1));
    goes_on(&again, 21).await;
    goes_on(&running, 31).await;
}

#[tokio::test]
async fn rule_r2_a_newer_schema_that_is_not_for_us_is_refused_and_left_alone() {
    let place = Place::new();
    let running = place.open();
    let held = {
        start(&running, 9).await;
        claim(&running, 9).await.unwrap().unwrap()
    };
    start(&running, 10).await;
    let next = running.schema_known() + 1;
    migrate(&place, &format!("{CHANGES}; {FOR_ITS_OWN}{next}"), next);
    stands_still(&running, &held).await;
    drop(running);
    let before = place.bytes();
    is_refused(place.try_open(KEY), next);
    assert_eq!(place.bytes(), before);
}

#[tokio::test]
async fn rule_r2_a_newer_schema_that_names_nobody_is_refused() {
    for silence in ["DROP TABLE schema_version", "DELETE FROM schema_version"] {
        let place = Place::new();
        let next = place.open().schema_known() + 1;
        migrate(&place, silence, next);
        is_refused(place.try_open(KEY), next);
    }
}

#[tokio::test]
async fn rule_r2_a_file_that_does_not_say_for_whom_it_is_says_so_after_an_upgrade() {
    let place = Place::new();
    start(&place.open(), 1).await;
    migrate(&place, "DROP TABLE schema_version; DROP TABLE probe", 11);
    let store = place.open();
    assert_eq!(store.schema_version(), store.schema_known());
    let from: u32 =
        place.meddle().query_row("SELECT readable_from FROM schema_version", [], |row| row.get(0)).unwrap();
    assert_eq!(from, 12);
}
