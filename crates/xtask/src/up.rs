//! `cargo xtask up` and `down`: what must be there before the bed's own program can do the work. A call that is not
//! understood is refused before anything is touched.

use crate::packages::Tier;
use crate::{Failure, machine, only_flag, places, run};

/// Flags of `up`; each has a value.
const FLAGS: [&str; 3] = ["--nodes", "--context", "--image"];

/// `cargo xtask up [--nodes N] [--context NAME [--image IMAGE]]`.
pub(crate) fn up(arguments: &[String]) -> Result<(), Failure> {
    let tier = tier(arguments).map_err(Failure::Refused)?;
    machine::prepare(tier)?;
    println!("building the operator and the bed");
    build()?;
    let operator = places::built("etcd-operator")?;
    let mut words = vec!["up".to_owned(), format!("--operator={}", operator.display())];
    words.extend(arguments.iter().cloned());
    Ok(run::plainly(run::program(&places::built("bed")?, words))?)
}

/// `cargo xtask down [--purge]`.
pub(crate) fn down(arguments: &[String]) -> Result<(), Failure> {
    only_flag(arguments, "--purge")?;
    if !places::built("bed")?.is_file() {
        build()?;
    }
    let words = [&["down".to_owned()], arguments].concat();
    Ok(run::plainly(run::program(&places::built("bed")?, words))?)
}

/// What a call of `up` needs, or why it is none.
fn tier(arguments: &[String]) -> Result<Tier, String> {
    let mut seen = Vec::new();
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let (flag, value) = match word.split_once('=') {
            Some((flag, value)) => (flag, Some(value)),
            None => (word.as_str(), words.next().map(String::as_str)),
        };
        if !FLAGS.contains(&flag) {
            return Err(format!("only {} are understood, not `{word}`", FLAGS.join(", ")));
        }
        let value = value
            .filter(|value| !value.is_empty() && !value.starts_with('-'))
            .ok_or_else(|| format!("{flag} needs a value"))?;
        if flag == "--nodes" && !["1", "3"].contains(&value) {
            return Err(format!("a bed has 1 or 3 nodes, not {value}"));
        }
        seen.push(flag);
    }
    match (
        seen.contains(&"--nodes"),
        seen.contains(&"--context"),
        seen.contains(&"--image"),
    ) {
        (true, true, _) => Err("--nodes is for a bed, and --context for a Kubernetes without one".into()),
        (_, false, true) => Err("--image is for --context: a bed is given the image that is built".into()),
        (_, true, _) => Ok(Tier::Context),
        (_, false, false) => Ok(Tier::Bed),
    }
}

fn build() -> Result<(), String> {
    run::plainly(run::cargo(["build", "--workspace", "--bins", "--locked"]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(words: &[&str]) -> Result<Tier, String> {
        tier(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn a_bed_needs_more_than_the_tools_for_another_kubernetes() {
        assert_eq!(of(&[]), Ok(Tier::Bed));
        assert_eq!(of(&["--nodes", "3"]), Ok(Tier::Bed));
        assert_eq!(of(&["--nodes=1"]), Ok(Tier::Bed));
        assert_eq!(of(&["--context", "kind-a", "--image=b"]), Ok(Tier::Context));
    }

    #[test]
    fn what_cannot_be_meant_is_refused_with_a_reason() {
        for (words, reason) in [
            (["--nodes", "2"].as_slice(), "1 or 3 nodes, not 2"),
            (&["--node", "1"], "not `--node`"),
            (&["--context"], "--context needs a value"),
            (&["--context", "--image"], "--context needs a value"),
            (&["--image", "a"], "--image is for --context"),
            (&["--nodes", "3", "--context", "a"], "--nodes is for a bed"),
        ] {
            assert!(of(words).is_err_and(|why| why.contains(reason)), "{words:?}");
        }
    }
}
