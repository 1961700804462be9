//! The known word that somebody most likely meant.

/// The nearest of the known words, if one is near enough to be meant.
pub(crate) fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let near = known.iter().map(|known| (distance(word, known), *known)).min()?;
    let near_enough = word.chars().count().max(near.1.chars().count()).div_ceil(2);
    (near.0 <= near_enough).then_some(near.1)
}

/// How many characters must be changed, added, left out or swapped with their neighbour.
fn distance(from: &str, to: &str) -> usize {
    let (from, to): (Vec<char>, Vec<char>) = (from.chars().collect(), to.chars().collect());
    let mut rows = vec![vec![0; to.len() + 1]; from.len() + 1];
    for (index, row) in rows.iter_mut().enumerate() {
        row[0] = index;
    }
    rows[0] = (0..=to.len()).collect();
    for i in 1..=from.len() {
        for j in 1..=to.len() {
            let changed = usize::from(from[i - 1] != to[j - 1]);
            let mut best = (rows[i - 1][j] + 1).min(rows[i][j - 1] + 1).min(rows[i - 1][j - 1] + changed);
            if i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = best;
        }
    }
    rows[from.len()][to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_that_was_meant_is_found() {
        let known = ["models", "system_prompt", "tool_groups", "max_tokens"];
        assert_eq!(nearest("model", &known), Some("models"));
        assert_eq!(nearest("toolgroups", &known), Some("tool_groups"));
        assert_eq!(nearest("maxtokesn", &known), Some("max_tokens"));
        assert_eq!(nearest("x", &known), None);
    }
}
