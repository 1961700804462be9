//! What becomes of pages, good ones and hostile ones.

use proptest::prelude::*;

use super::super::prose::TEXT_BYTES_MAX;
use super::*;

fn url() -> Url {
    Url::parse("https://docs.rs/a/b").unwrap()
}

fn text(page: &str) -> String {
    words(page, &url()).text
}

#[test]
fn a_page_becomes_title_and_text() {
    let page = "<!DOCTYPE html><html><head><title> The\n <b>Title </title><style>p { color: red }</style>\
        <script>if (1 < 2) document.write('<p>no</p>')</script></head><body><!-- no --><h1>Head</h1>\n\
        <p>One &amp; <b>two</b>,\n   three.<p>Four<br>five<ul><li>A<li> <p>B</p></li></ul>\
        <table><tr><th>k<th>v<tr><td>1</td><td>2</td></table><pre>  a\n\n\n  b\n</pre><svg><title>Icon</title></svg>\
        <a href='../c?x=1#y'>link</a>.</body></html>";
    assert_eq!(
        words(page, &url()),
        Words {
            title: Some("The <b>Title".to_owned()),
            text:
                "# Head\n\nOne & two, three.\n\nFour\nfive\n\n- A\n\n- B\n\nk | v\n1 | 2\n\n  a\n\n\n  b\n\n\
                   link (https://docs.rs/c?x=1#y)."
                    .to_owned(),
            is_cut: false,
        }
    );
}

#[test]
fn links_say_where_they_lead() {
    for (page, expected) in [
        ("<a href=/x>y</a>", "y (https://docs.rs/x)"),
        ("<a href=/x href=/z>y</a>", "y (https://docs.rs/x)"),
        ("<a class=c href=\"http://e.example/?a=1&amp;b=2\">y</a>", "y (http://e.example/?a=1&b=2)"),
        ("<a href=/x></a>", ""),
        ("<a href=/x> </a>y", "y"),
        ("<a>y</a>", "y"),
        ("<a href=#y>y</a>", "y"),
        ("<a href='javascript:alert(1)'>y</a>", "y"),
        ("<a href='data:text/html,x'>y</a>", "y"),
        ("<a href=mailto:x@y.example>y</a>", "y"),
        ("<a href='https://[bad'>y</a>", "y"),
        ("<base href=https://e.example/d/><a href=x>y</a>", "y (https://e.example/d/x)"),
        ("<base href=data:x><a href=x>y</a>", "y (https://docs.rs/a/x)"),
        ("<a href=/x>y<a href=/z>w</a></a>", "y (https://docs.rs/x)w (https://docs.rs/z)"),
    ] {
        assert_eq!(text(page), expected, "{page}");
    }
    let long = format!("<a href=/{}>y</a>", "x".repeat(LINK_BYTES_MAX));
    assert_eq!(text(&long), "y");
}

#[test]
fn what_is_no_text_is_left_out() {
    for page in [
        "<script>a</script>",
        "<script>'</scrip>'",
        "<SCRIPT>a</SCRIPT>",
        "<style>a",
        "<noscript><p>a</p></noscript>",
        "<template><p>a<template>b</template>c</p></template>",
        "<svg><g>a</g></svg>",
        "<svg><svg>a</svg>b</svg>",
        "<iframe>a</iframe>",
        "<select><option>a</select>",
        "<!-- a -->",
        "<title>a</title>",
        "<p title=a>",
        "<a",
        "<",
        "",
    ] {
        let text = text(page);
        assert!(text.is_empty() || page == "<", "{page}: {text}");
    }
    for (page, expected) in [
        ("<svg/>a", "a"),
        ("<template/>a", ""),
        ("</pre>a  b", "a b"),
        ("<title>a", ""),
        ("&#0;&#xD800;", "��"),
    ] {
        assert_eq!(text(page), expected, "{page}");
    }
}

#[test]
fn case_c53_a_hostile_page_takes_no_more_than_its_length() {
    let numbered = |from: &str, to: &str| (0..60_000).map(|n| format!("{from}{n}{to}")).collect::<String>();
    let long_base = format!("<base href=https://docs.rs/{}/>", "x".repeat(400));
    // Each of these is a megabyte or so, and would take a tree builder long.
    for page in [
        numbered("<b a=", ">") + &"<p>x".repeat(150_000),
        format!("<p {}>x", numbered("a", " ")),
        "<div>".repeat(250_000),
        "<table><tr><td>".repeat(80_000),
        "<a href=x>y".repeat(120_000),
        long_base + &"<a href=x>y</a>".repeat(80_000),
        "<svg>".repeat(250_000),
        "<pre> ".repeat(200_000),
        "</p>".repeat(250_000),
        "<li>".repeat(250_000),
        "&amp".repeat(250_000),
        "&".repeat(1_200_000),
        "<!--".repeat(250_000),
        "é🦀".repeat(200_000),
        "<title>x".repeat(150_000),
        format!("<a href={}>y", "x".repeat(1_200_000)),
    ] {
        let words = words(&page, &url());
        assert!(words.text.len() <= TEXT_BYTES_MAX);
        assert!(words.title.is_none_or(|title| title.chars().count() <= TITLE_CHARS_MAX));
    }
}

proptest! {
    #[test]
    fn no_page_breaks_the_reader(
        parts in prop::collection::vec("\\PC{0,8}|</?[a-z]{1,5}[ />]|<(a href=|script>|pre>|svg|title>|!--|!\\[CDATA\\[)|&[#a-z0-9x]{0,6};?", 0..40)
    ) {
        let text = text(&parts.concat());
        prop_assert!(text.len() <= TEXT_BYTES_MAX);
    }
}
