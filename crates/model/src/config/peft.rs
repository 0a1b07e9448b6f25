//! `adapter_config.json` as PEFT reads and writes it.

use super::fields::{Fields, Neutral, refuse};
use super::lora::{ALL_LINEAR, LoraConfig};
use super::refused::{NOTHING, OFF};
use crate::error::{Error, Result};
use serde_json::{Value, json};

/// What an unused option holds.
const EMPTY: Neutral = |value| match value {
    Value::Bool(on) => !on,
    Value::Array(list) => list.is_empty(),
    Value::Object(map) => map.is_empty(),
    _ => false,
};

/// Fields that would change the adapter, which of their values ask for nothing beside `null`, and what
/// is allowed, in words.
const FIELDS: [(&str, Neutral, &str); 12] = [
    ("peft_type", |value| *value == "LORA", "\"LORA\": tinyloom has no other adapters"),
    ("use_dora", OFF, "false: tinyloom has no DoRA"),
    ("modules_to_save", EMPTY, "null: tinyloom trains no whole modules beside an adapter"),
    ("bias", |value| *value == "none", "\"none\": tinyloom trains no biases beside an adapter"),
    ("lora_bias", OFF, "false: tinyloom's adapters have no biases"),
    ("rank_pattern", EMPTY, "empty: the modules of an adapter have one rank"),
    ("alpha_pattern", EMPTY, "empty: the modules of an adapter have one alpha"),
    ("layers_to_transform", NOTHING, "null: name modules with their layers in target_modules"),
    ("exclude_modules", EMPTY, "null: name the modules to adapt in target_modules"),
    ("target_parameters", EMPTY, "null: tinyloom adapts modules, not single parameters"),
    ("layer_replication", NOTHING, "null: tinyloom does not repeat layers"),
    (
        "init_lora_weights",
        |value| {
            value.is_boolean() || ["gaussian", "eva", "orthogonal"].iter().any(|one| value == one)
        },
        "true, false, \"gaussian\", \"eva\" or \"orthogonal\": others change the base",
    ),
];

/// Fields that change nothing here, whatever they hold.
const NOTES: [&str; 12] = [
    // How A began.
    "eva_config",
    "auto_mapping",
    "base_model_name_or_path",
    // How the base stores its matrices, which its family says.
    "fan_in_fan_out",
    "inference_mode",
    "layers_pattern",
    "megatron_core",
    "peft_version",
    "qalora_group_size",
    "revision",
    "runtime_config",
    "task_type",
];

impl LoraConfig {
    /// Reads the text of `adapter_config.json`. The seed, which is in no such file, is 0.
    ///
    /// # Errors
    /// `invalid-config`, naming the field: what would change the adapter in a way that tinyloom has not,
    /// and every field that is not known and asks for something.
    pub fn from_peft(text: &str) -> Result<Self> {
        let mut fields = Fields::read(text)?;
        for (name, neutral, allowed) in FIELDS {
            fields.require_neutral(name, neutral, allowed)?;
            fields.drop(name);
        }
        NOTES.iter().for_each(|name| fields.drop(name));
        let default = Self::default();
        let lora = Self {
            rank: fields.size("r", default.rank, 1 << 16)?,
            alpha: fields.real("lora_alpha", default.alpha)?,
            rs_lora: fields.flag("use_rslora", false)?,
            dropout: fields.real("lora_dropout", 0.0)?,
            targets: targets(fields.take_set("target_modules")?)?,
            seed: default.seed,
        };
        for name in fields.names() {
            fields.require_neutral(name, EMPTY, "absent: tinyloom does not know this field")?;
        }
        match lora.wrong() {
            Some((option, what)) => {
                Err(Error::config(format!("config field {} {what}", field_of(option))))
            }
            None => Ok(lora),
        }
    }

    /// The text of `adapter_config.json`.
    pub fn to_peft(&self) -> String {
        // PEFT reads "all-linear" as a string alone, and it stands for whatever is named beside it.
        let all = self.targets.iter().any(|target| target == ALL_LINEAR);
        let targets = if all { json!(ALL_LINEAR) } else { json!(self.targets) };
        let fields = json!({
            "peft_type": "LORA",
            "task_type": "CAUSAL_LM",
            "r": self.rank,
            "lora_alpha": self.alpha,
            "use_rslora": self.rs_lora,
            "lora_dropout": self.dropout,
            "target_modules": targets,
            "bias": "none",
            "inference_mode": true,
        });
        format!("{fields:#}\n")
    }
}

/// The name of an option in the file. A wrong rank is refused as it is read.
fn field_of(option: &str) -> &str {
    match option {
        "alpha" => "lora_alpha",
        "dropout" => "lora_dropout",
        "targets" => "target_modules",
        other => other,
    }
}

fn targets(value: Option<Value>) -> Result<Vec<String>> {
    let allowed = "a list of modules' names, or \"all-linear\"; tinyloom reads no pattern";
    let name = |name: &Value| name.as_str().map(str::to_owned);
    match value {
        Some(Value::String(all)) if all == ALL_LINEAR => Ok(vec![all]),
        Some(Value::Array(list)) => list
            .iter()
            .map(|item| name(item).ok_or_else(|| refuse("target_modules", item, "a module's name")))
            .collect(),
        other => Err(refuse("target_modules", &other.unwrap_or(Value::Null), allowed)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorCode;

    fn refused(more: &str) -> String {
        let text = format!(r#"{{"peft_type":"LORA","target_modules":["q_proj"],{more}}}"#);
        let error = LoraConfig::from_peft(&text).unwrap_err();
        assert_eq!(error.code, ErrorCode::InvalidConfig, "{}", error.message);
        error.message
    }

    #[test]
    fn what_an_adapter_here_has_not_is_refused_by_name() {
        for (field, value) in [
            ("use_dora", "true"),
            ("modules_to_save", r#"["lm_head"]"#),
            ("bias", r#""lora_only""#),
            ("lora_bias", "true"),
            ("rank_pattern", r#"{"q_proj":4}"#),
            ("alpha_pattern", r#"{"q_proj":4}"#),
            ("layers_to_transform", "[1]"),
            ("exclude_modules", r#"["q_proj"]"#),
            ("target_parameters", r#"["a"]"#),
            ("layer_replication", "[[0,1]]"),
            ("init_lora_weights", r#""pissa""#),
            ("use_qalora", "true"),
            ("corda_config", r#"{"a":1}"#),
            ("of_another_year", "3"),
            ("r", "0"),
            ("lora_alpha", r#""eight""#),
            ("lora_alpha", "0"),
            ("lora_dropout", "1.5"),
        ] {
            let message = refused(&format!("\"{field}\":{value}"));
            assert!(message.contains(field), "{field}: {message}");
        }
        let read = |text: &str| LoraConfig::from_peft(text).unwrap_err().message;
        assert!(read(r#"{"peft_type":"IA3"}"#).contains("peft_type"));
        assert!(read(r#"{"peft_type":"LORA"}"#).contains("target_modules"));
        assert!(read(r#"{"target_modules":".*q_proj"}"#).contains("target_modules"));
        assert!(read(r#"{"target_modules":[1]}"#).contains("target_modules"));
        assert!(read(r#"{"target_modules":[]}"#).contains("target_modules"));
    }

    #[test]
    fn how_a_began_does_not_matter() {
        for init in ["true", "false", r#""gaussian""#, r#""eva""#, r#""orthogonal""#] {
            let text = format!(
                r#"{{"peft_type":"LORA","target_modules":["q_proj"],"init_lora_weights":{init},"eva_config":{{"rho":2}}}}"#
            );
            LoraConfig::from_peft(&text).unwrap();
        }
    }

    #[test]
    fn what_is_written_reads_as_it_was() {
        for targets in
            [vec![ALL_LINEAR.to_owned()], vec!["q_proj".to_owned(), "up_proj".to_owned()]]
        {
            let lora =
                LoraConfig { rank: 5, alpha: 2.5, rs_lora: true, dropout: 0.05, targets, seed: 0 };
            assert_eq!(LoraConfig::from_peft(&lora.to_peft()).unwrap(), lora);
        }
    }

    #[test]
    fn all_linear_beside_other_targets_is_written_as_a_string() {
        for targets in [["all-linear", "q_proj"], ["q_proj", "all-linear"]] {
            let targets = targets.map(str::to_owned).to_vec();
            let written = LoraConfig { targets, ..LoraConfig::default() }.to_peft();
            let value: Value = serde_json::from_str(&written).unwrap();
            assert_eq!(value["target_modules"], json!("all-linear"));
            assert_eq!(LoraConfig::from_peft(&written).unwrap().targets, ["all-linear"]);
        }
    }
}
