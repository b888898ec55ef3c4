//! Whose turn it is, where more is due than may run at once: the one that has been due longest.

use std::collections::BTreeSet;

use jiff::Timestamp;

/// Who waits, and since when it has been due.
pub type Waiting = (Timestamp, String);

/// Whether it is the turn of `own` while `running` run and no more than `most` may. Others before it in the line come
/// first, whether or not they have noticed yet.
pub fn is_next(running: usize, most: usize, line: &BTreeSet<Waiting>, own: &Waiting) -> bool {
    let ahead = line.iter().take_while(|other| *other < own).count();
    running + ahead < most.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(second: i64, name: &str) -> Waiting {
        (Timestamp::from_second(second).unwrap(), name.to_owned())
    }

    #[test]
    fn those_that_were_due_first_come_first_and_never_more_than_allowed() {
        let line: BTreeSet<_> = [one(5, "c"), one(1, "b"), one(1, "a"), one(9, "d")].into();
        let started = |running| -> Vec<String> {
            let may = line.iter().filter(|own| is_next(running, 3, &line, own));
            may.map(|(_, name)| name.clone()).collect()
        };
        assert_eq!(started(0), ["a", "b", "c"]);
        assert_eq!(started(1), ["a", "b"]);
        assert_eq!(started(2), ["a"]);
        assert_eq!(started(3), [""; 0]);
        assert_eq!(started(7), [""; 0]);
    }

    #[test]
    fn two_hundred_that_are_due_at_once_all_run_in_the_end() {
        let mut line: BTreeSet<_> = (0..200).map(|n| one(60, &format!("b{n:03}"))).collect();
        let (mut running, mut rounds) = (0, 0);
        while !line.is_empty() {
            let next: Vec<_> = line
                .iter()
                .filter(|own| is_next(running, 8, &line, own))
                .cloned()
                .collect();
            running += next.len();
            assert!(running <= 8 && !next.is_empty());
            for own in next {
                line.remove(&own);
            }
            running -= 3.min(running);
            rounds += 1;
        }
        assert!(rounds < 200);
    }
}
