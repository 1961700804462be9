//! What the contract states, and what the operator may add.

use countersign::{DataClass, Effect, OperatorWord, Origin, Pause};

use super::*;

#[test]
fn the_contract_lists_these_facts() {
    let spec = FetchPage::new(FetchPageConfig::unsaid()).unwrap().spec();
    assert_eq!((spec.name.as_str(), spec.group.as_str()), ("fetch_page", "web"));
    assert_eq!((spec.effect, spec.data_class), (Effect::Read, DataClass::PublicContent));
    assert!(!spec.enabled_by_default && !spec.requires_admin);
    assert_eq!(
        (spec.pause, spec.operator, spec.origin),
        (Pause::Runs, OperatorWord::Silent, Origin::Builtin)
    );
    assert_eq!(spec.parameters["required"], json!(["url"]));
    assert_eq!(spec.parameters["additionalProperties"], false);
}

#[test]
fn rule_a1_the_operator_tightens_and_enables() {
    let said = FetchPageConfig {
        enabled: true,
        hosts: Vec::new(),
        operator: OperatorWord::Asks,
        requires_admin: true,
        data_class: DataClass::SecretAdjacent,
    };
    let spec = FetchPage::new(said).unwrap().spec();
    assert_eq!((spec.operator, spec.data_class), (OperatorWord::Asks, DataClass::SecretAdjacent));
    assert!(spec.enabled_by_default && spec.requires_admin);
}

#[tokio::test]
async fn no_list_no_host() {
    let tool = FetchPage::new(FetchPageConfig::unsaid()).unwrap();
    let refused = call(&tool, "https://docs.rs/").await.unwrap_err();
    assert_eq!(refused, "No host is allowed: the operator has listed none.");
}

#[tokio::test]
async fn arguments_that_do_not_fit_are_answered() {
    let tool = FetchPage::new(FetchPageConfig::unsaid()).unwrap();
    for text in ["{}", r#"{"url":7}"#, r#"{"url":"https://docs.rs/","method":"POST"}"#] {
        let arguments = Arguments::read(Some(text)).unwrap();
        let answer = tool.call(&arguments, &call_context(&Subject::parse("alice").unwrap(), None)).await;
        let error = answer.unwrap_err();
        assert!(matches!(error.failure(), ToolFailure::Answered(_)), "{text}: {error:?}");
        assert!(error.to_string().starts_with("The arguments cannot be used"), "{text}: {error}");
    }
}
