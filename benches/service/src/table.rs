//! What was measured, and how it is shown.

/// What was measured at one place: a name and a text each, in their order.
pub(crate) type Figures = Vec<(String, String)>;

/// The median, with the least and the most.
pub(crate) fn spread(mut samples: Vec<f64>) -> String {
    samples.sort_by(f64::total_cmp);
    let (least, most) = (samples[0], samples[samples.len() - 1]);
    format!("{:.2} ({least:.2} – {most:.2})", samples[samples.len() / 2])
}

/// The one in the middle.
pub(crate) fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}

/// A column for each place, a row for each name. What was not measured everywhere stands where it was first measured.
pub(crate) fn text(measured: &[(String, Figures)]) -> String {
    let mut names: Vec<&str> = Vec::new();
    for (_, figures) in measured {
        let mut place = 0;
        for (name, _) in figures {
            let known = names.iter().position(|known| known == name);
            place = known.unwrap_or(place);
            if known.is_none() {
                names.insert(place, name);
            }
            place += 1;
        }
    }
    let columns: Vec<&str> = measured.iter().map(|(column, _)| column.as_str()).collect();
    let mut text = format!("|  | {} |\n|---|{}", columns.join(" | "), "--:|".repeat(columns.len()));
    for name in names {
        let cells = measured.iter().map(|(_, figures)| {
            figures.iter().find(|(known, _)| known == name).map_or("–", |(_, cell)| cell.as_str())
        });
        text.push_str(&format!("\n| {name} | {} |", cells.collect::<Vec<_>>().join(" | ")));
    }
    text
}
