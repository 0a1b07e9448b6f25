//! Families whose layers differ from those of other tests, as whole models.

use super::Double;
use super::layer_tests::decodes_as_it_trains;
use super::plan_tests::trains;
use super::tests::{named, software};

const BIASES: &str = r#"{"vocab_size":64,"hidden_size":32,"intermediate_size":48,"num_hidden_layers":2,
    "num_attention_heads":2,"num_key_value_heads":1,"head_dim":16,"initializer_range":0.2,
    "max_position_embeddings":512,"attention_bias":true,"mlp_bias":true}"#;
const GRANITE: &str = r#"{"model_type":"granite","vocab_size":64,"hidden_size":32,"intermediate_size":48,
    "num_hidden_layers":2,"num_attention_heads":2,"num_key_value_heads":1,"initializer_range":0.2,
    "max_position_embeddings":512,"embedding_multiplier":3,"residual_multiplier":0.4,
    "attention_multiplier":0.3,"logits_scaling":0.7}"#;
const OLMO2: &str = r#"{"model_type":"olmo2","vocab_size":64,"hidden_size":32,"intermediate_size":48,
    "num_hidden_layers":2,"num_attention_heads":2,"head_dim":20,"initializer_range":0.2,
    "max_position_embeddings":512}"#;
const STABLELM: &str = r#"{"model_type":"stablelm","vocab_size":64,"hidden_size":32,"intermediate_size":48,
    "num_hidden_layers":2,"num_attention_heads":2,"num_key_value_heads":1,"initializer_range":0.2,
    "max_position_embeddings":512,"use_qkv_bias":true}"#;
const PHI3: &str = r#"{"model_type":"phi3","vocab_size":64,"hidden_size":32,"intermediate_size":48,
    "num_hidden_layers":2,"num_attention_heads":2,"num_key_value_heads":1,"initializer_range":0.2,
    "max_position_embeddings":512,"partial_rotary_factor":0.75}"#;
const ALL: [&str; 5] = [BIASES, GRANITE, OLMO2, STABLELM, PHI3];

#[test]
fn families_train_as_the_twin() {
    for config in ALL {
        trains(&Double::floor(), config, false, [40, 23]);
        trains(&software(), config, true, [40, 23]);
        trains(&named("NVIDIA"), config, false, [40, 23]);
    }
}

#[test]
fn families_decode_as_they_train() {
    ALL.into_iter().for_each(decodes_as_it_trains);
}
