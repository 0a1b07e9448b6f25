//! The options of optimizers in TypeScript: written from the rules' rows, and held to them.
//!
//! `TINYLOOM_GOLDEN=write cargo test -p tinyloom-kernels --features testing typescript` writes the file.

use super::{Bounds, Number, RULES};
use std::{env, fs};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../pkg/src/optimizers.ts");

fn number(value: f64) -> String {
    if value != 0.0 && value.abs() < 1e-3 { format!("{value:e}") } else { value.to_string() }
}

/// A comment with this indent and lines of up to 100 characters.
fn comment(text: &str, indent: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last().unwrap();
        if indent.len() + 4 + line.len() + word.len() > 100 {
            lines.push(String::new());
        }
        let line = lines.last_mut().unwrap();
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    let body: String = lines.iter().map(|line| format!("{indent} * {line}\n")).collect();
    format!("{indent}/**\n{body}{indent} */\n")
}

/// "default 1e-3, of Lion 1e-4", with the rules' names.
fn defaults(of: impl Fn(&super::Rule) -> f64) -> String {
    let first = of(RULES[0]);
    let others = RULES.iter().filter(|rule| of(rule) != first);
    let others = others.map(|rule| format!(", of `\"{}\"` {}", rule.name, number(of(rule))));
    format!("default {}{}", number(first), others.collect::<String>())
}

/// What a number is to each rule that has it. Rules to which it is the same stand together.
fn meaning(name: &str) -> String {
    let mut meanings: Vec<(String, Vec<String>)> = vec![];
    for rule in RULES {
        let Some(own) = rule.numbers.iter().find(|number| number.name == name) else { continue };
        let what = format!("{}; default {}.", own.what, number(own.default));
        let rule = format!("`\"{}\"`", rule.name);
        match meanings.iter_mut().find(|(known, _)| *known == what) {
            Some((_, rules)) => rules.push(rule),
            None => meanings.push((what, vec![rule])),
        }
    }
    let sentence = |(what, rules): &(String, Vec<String>)| format!("{}: {what}", rules.join(", "));
    meanings.iter().map(sentence).collect::<Vec<_>>().join(" ")
}

fn check(bounds: Bounds) -> String {
    match bounds {
        Bounds::Share => "fraction()".into(),
        Bounds::Positive => "number(0, Number.POSITIVE_INFINITY, true)".into(),
        Bounds::AtLeast(low) => format!("number({})", number(low)),
        Bounds::AtMost(high) => format!("number(Number.NEGATIVE_INFINITY, {})", number(high)),
    }
}

/// All numbers, each once.
fn numbers() -> Vec<Number> {
    let of = |name: &&str| {
        let all = RULES.iter().flat_map(|rule| rule.numbers).filter(|own| own.name == *name);
        let all: Vec<_> = all.collect();
        assert!(all.iter().all(|own| own.bounds == all[0].bounds), "{name} has several bounds");
        *all[0]
    };
    super::number_names().iter().map(of).collect()
}

fn text() -> String {
    let names: Vec<_> = RULES.iter().map(|rule| format!("\"{}\"", rule.name)).collect();
    let whats: Vec<_> = RULES.iter().map(|rule| rule.what).collect();
    let mut text = String::from(
        "/** Optimizers and their options. The tests of crates/kernels/src/optim write this file from its rows. */\n\n\
         import { fraction, number, oneOf, type Rules } from \"./options.js\";\n\n",
    );
    text += "/** The numbers of optimizers. Each has its own; others are refused. */\n\
             export interface OptimizerNumbers {\n";
    for number in numbers() {
        text += &comment(&meaning(number.name), "  ");
        text += &format!("  {}?: number;\n", number.name);
    }
    text += "}\n\n/** What of a trainer's options depends on the optimizer. */\n\
             export interface OptimizerOptions extends OptimizerNumbers {\n";
    let what = format!(
        "What turns gradients into updates; default `{}`. {} Each has its own numbers among the options; others are \
         refused.",
        names[0],
        whats.join(" ")
    );
    text += &comment(&what, "  ");
    text += &format!("  optimizer?: {};\n", names.join(" | "));
    let rate = defaults(|rule| rule.learning_rate);
    text += &comment(&format!("Peak learning rate; {rate}."), "  ");
    text += "  learningRate?: number;\n";
    let decay = defaults(|rule| rule.weight_decay);
    let coupled = RULES.iter().filter(|rule| rule.coupled);
    let coupled: Vec<_> = coupled.map(|rule| format!("`\"{}\"`", rule.name)).collect();
    let decay = format!(
        "Weight decay of matrices and embeddings, but not of norms; {decay}. It is decoupled, but for {}.",
        coupled.join(" and ")
    );
    text += &comment(&decay, "  ");
    text += "  weightDecay?: number;\n}\n\n\
             /** Rules of {@link OptimizerOptions}. */\n\
             export const OPTIMIZER: Rules<OptimizerOptions> = {\n";
    text += &format!("  optimizer: oneOf({}),\n", names.join(", "));
    text +=
        "  learningRate: number(0, Number.POSITIVE_INFINITY, true),\n  weightDecay: number(0),\n";
    for number in numbers() {
        text += &format!("  {}: {},\n", number.name, check(number.bounds));
    }
    text += "};\n\n/** Where an optimizer's defaults are not the first one's. */\n\
             export const DEFAULTS: { readonly [optimizer: string]: OptimizerOptions } = {\n";
    let first = RULES[0];
    for rule in RULES {
        if (rule.learning_rate, rule.weight_decay) != (first.learning_rate, first.weight_decay) {
            let [rate, decay] = [rule.learning_rate, rule.weight_decay].map(number);
            text +=
                &format!("  {}: {{ learningRate: {rate}, weightDecay: {decay} }},\n", rule.name);
        }
    }
    text + "};\n"
}

/// But for spaces, which a formatter may have changed.
#[test]
fn the_options_of_optimizers_in_typescript_are_the_rules() {
    if env::var_os("TINYLOOM_GOLDEN").is_some_and(|value| value == "write") {
        fs::write(FILE, text()).unwrap();
    }
    let written = fs::read_to_string(FILE).unwrap();
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let (written, wanted) = (words(&written), words(&text()));
    let first = written.iter().zip(&wanted).find(|(a, b)| a != b);
    assert!(
        written == wanted,
        "the rules have changed: {first:?}; write pkg/src/optimizers.ts anew"
    );
}
