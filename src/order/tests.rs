use super::{Numbers, SortedMap};
use std::collections::BTreeMap;

/// Both maps with the same entries, which come in another order and partly again.
fn both(count: u32) -> (SortedMap<String, u32>, BTreeMap<String, u32>) {
    let entries = || (0..count).map(|i| ((i * 37 % 101).to_string(), i));
    (entries().collect(), entries().collect())
}

fn assert_same(sorted: &SortedMap<String, u32>, tree: &BTreeMap<String, u32>) {
    assert!(sorted.iter().eq(tree.iter()), "{sorted:?}\n{tree:?}");
    assert_eq!((sorted.len(), sorted.is_empty()), (tree.len(), tree.is_empty()));
    for i in 0..110 {
        let key = i.to_string();
        assert_eq!(sorted.get(&key), tree.get(&key));
        assert_eq!(sorted.contains_key(&key), tree.contains_key(&key));
    }
}

#[test]
fn entries_are_those_of_a_tree() {
    for count in [0, 1, 7, 250] {
        let (mut sorted, mut tree) = both(count);
        assert_same(&sorted, &tree);
        for i in [3, 500, 40, 3, 0, 77] {
            let key = i.to_string();
            assert_eq!(sorted.insert(key.clone(), i), tree.insert(key.clone(), i));
            assert_eq!(sorted.get_mut(&key), tree.get_mut(&key));
            assert_eq!(sorted[&*key], i);
            *sorted.or_default(format!("{i}+")) += i;
            *tree.entry(format!("{i}+")).or_default() += i;
            assert_eq!(sorted.remove(&(i + 1).to_string()), tree.remove(&(i + 1).to_string()));
            assert_same(&sorted, &tree);
        }
        sorted.retain(|key, value| key.len() < 3 && *value % 3 > 0);
        tree.retain(|key, value| key.len() < 3 && *value % 3 > 0);
        assert_same(&sorted, &tree);
        assert!(sorted.into_iter().eq(tree));
    }
}

#[test]
fn json_is_that_of_a_tree() {
    let (sorted, tree) = both(250);
    let text = serde_json::to_string(&sorted).unwrap();
    assert_eq!(text, serde_json::to_string(&tree).unwrap());
    let again = r#"{"b": 1, "a": 2, "b": 3}"#;
    for text in [&text, again, "{}"] {
        assert_same(&serde_json::from_str(text).unwrap(), &serde_json::from_str(text).unwrap());
    }
    for wrong in ["[]", "{\"a\": -1}", "{\"a\"", "3"] {
        assert!(serde_json::from_str::<SortedMap<String, u32>>(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn a_set_of_numbers_knows_what_is_new() {
    let mut set = Numbers::from_iter([3, 0, 3]);
    assert_eq!(
        [0, 1, 2, 3, 4].map(|number| set.contains(number)),
        [true, false, false, true, false]
    );
    assert!(set.insert(200) && !set.insert(200) && !set.insert(3));
    set.extend([1]);
    assert!(set.contains(1) && set.contains(200) && !set.contains(199));
}

#[test]
fn a_value_is_made_where_there_is_none() {
    let mut map = SortedMap::from_iter([("b", 2)]);
    *map.or_insert_with("a", || 1) += 10;
    *map.or_insert_with("b", || panic!("it has a value")) += 10;
    assert!(map.values().eq(&[11, 12]));
}
