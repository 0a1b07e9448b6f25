//! Calls as they cross from JavaScript: a list of fields, each its number, how many values it has, and
//! these. `pkg/src/fields.ts` writes it.

use super::{
    AttentionCall, AttentionOperation, DenseData, DenseKind, DenseOption, MaskOptions, Operation,
    PerItem, Role, SoftmaxCall, TENSORS, TensorView,
};
use crate::error::{Error, Result};
use crate::kernels::Element;

/// Fields below [`TENSORS`] are tensors, by role: the buffer's number, 1 for f16, the offset, the sizes of
/// all axes, then their strides.
const CAUSAL: usize = 16;
const WINDOW: usize = 17;
const SCALE: usize = 18;
const SOFT_CAP: usize = 19;
const QUERY_OFFSET: usize = 20;
const QUERY_OFFSETS: usize = 21;
const DOCUMENTS: usize = 22;
/// The list of a batch item; one field each.
const DOCUMENTS_OF_ITEM: usize = 23;
const KEY_LENGTHS: usize = 24;
const TREE: usize = 25;
/// How many words each batch item has.
const TREE_PER_ITEM: usize = 26;
const BOOLEAN: usize = 27;
const ADDITIVE: usize = 28;

/// The operations by number.
const ATTENTION: [AttentionOperation; 3] =
    [AttentionOperation::Forward, AttentionOperation::Backward, AttentionOperation::Decode];

const SOFTMAX: u32 = ATTENTION.len() as u32;

impl Operation {
    /// Judges a call that crosses as `fields`, with the data of its dense mask. The operation is 0 to 2 for
    /// attention's forward, backward and decode, and 3 for softmax.
    ///
    /// # Errors
    /// Those of [`AttentionCall::judge`] and [`SoftmaxCall::judge`]; `internal` for no such fields.
    pub fn of_fields(
        operation: u32,
        fields: &[f64],
        dense: Option<&dyn DenseData>,
    ) -> Result<Self> {
        let mut call = AttentionCall {
            // Softmax takes none of the options that a call of attention gathers, and its tensor alone.
            operation: match ATTENTION.get(operation as usize) {
                Some(attention) => *attention,
                None if operation == SOFTMAX => ATTENTION[0],
                None => {
                    return Err(Error::internal(format!("no operation has number {operation}")));
                }
            },
            tensors: [const { None }; TENSORS],
            scale: None,
            soft_cap: None,
            mask: MaskOptions::default(),
        };
        let mut kind = None;
        let mut rest = fields;
        while let [field, count, values @ ..] = rest {
            let (values, others) =
                values.split_at_checked(*count as usize).ok_or_else(|| wrong(*field))?;
            rest = others;
            set(&mut call, &mut kind, *field as usize, values).ok_or_else(|| wrong(*field))?;
        }
        call.mask.dense = match (kind, dense) {
            (Some(kind), Some(data)) => Some(DenseOption { kind, data }),
            (None, None) => None,
            (Some(_), None) => return Err(Error::internal("a call's dense mask has no data")),
            (None, Some(_)) => return Err(Error::internal("no field says what a call's data is")),
        };
        if operation != SOFTMAX {
            return call.judge();
        }
        let [input, ..] = call.tensors;
        SoftmaxCall { input: input.ok_or_else(|| wrong(f64::from(Role::Query as u32)))? }.judge()
    }
}

/// Notes a field of a call, or of the kind of its dense mask; none where there is no such field.
fn set<'a>(
    call: &mut AttentionCall<'a>,
    kind: &mut Option<DenseKind<'a>>,
    field: usize,
    values: &'a [f64],
) -> Option<()> {
    let one = || values.first().copied();
    let mask = &mut call.mask;
    match field {
        role if role < TENSORS => call.tensors[role] = Some(tensor(values)?),
        CAUSAL => mask.causal = true,
        WINDOW => mask.window = one(),
        SCALE => call.scale = one(),
        SOFT_CAP => call.soft_cap = one(),
        QUERY_OFFSET => mask.query_offset = one().map(PerItem::All),
        QUERY_OFFSETS => mask.query_offset = Some(PerItem::Each(values.to_vec())),
        DOCUMENTS => mask.documents = Some(PerItem::All(values)),
        DOCUMENTS_OF_ITEM => match &mut mask.documents {
            Some(PerItem::Each(lists)) => lists.push(values),
            _ => mask.documents = Some(PerItem::Each(vec![values])),
        },
        KEY_LENGTHS => mask.key_lengths = Some(values),
        TREE => *kind = Some(DenseKind::Tree { lists: None }),
        TREE_PER_ITEM => *kind = Some(DenseKind::Tree { lists: Some(values) }),
        BOOLEAN => *kind = Some(DenseKind::Boolean { shape: values }),
        ADDITIVE => *kind = Some(DenseKind::Additive { shape: values }),
        _ => return None,
    }
    Some(())
}

fn wrong(field: f64) -> Error {
    Error::internal(format!("field {field} of a call is wrong"))
}

fn tensor(values: &[f64]) -> Option<TensorView> {
    let [id, half, offset, axes @ ..] = values else { return None };
    let sizes = |list: &[f64]| list.iter().map(|&size| size as usize).collect();
    let (shape, strides) = axes.split_at(axes.len() / 2);
    Some(TensorView {
        id: *id as u32,
        element: if *half == 1.0 { Element::F16 } else { Element::F32 },
        offset: *offset as usize,
        shape: sizes(shape),
        strides: sizes(strides),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A call of attention over four tokens of two heads of 8, with a boolean mask of 4 by 4.
    fn call(operation: u32, masked: bool, dense: Option<&dyn DenseData>) -> Result<Operation> {
        let mut fields = vec![];
        for role in 0..3 {
            let tensor = [f64::from(role + 1), 0.0, 0.0, 1.0, 2.0, 4.0, 8.0, 64.0, 32.0, 8.0, 1.0];
            fields.extend([f64::from(role), tensor.len() as f64]);
            fields.extend(tensor);
        }
        if masked {
            fields.extend([BOOLEAN as f64, 2.0, 4.0, 4.0]);
        }
        Operation::of_fields(operation, &fields, dense)
    }

    #[test]
    fn a_dense_mask_has_a_kind_and_data() {
        let data = vec![1u8; 16];
        call(0, true, Some(&data)).unwrap();
        call(0, false, None).unwrap();
        let message = |call: Result<Operation>| call.unwrap_err().message;
        assert_eq!(message(call(0, true, None)), "a call's dense mask has no data");
        assert_eq!(message(call(0, false, Some(&data))), "no field says what a call's data is");
    }

    #[test]
    fn an_operation_has_a_number_that_is_known() {
        call(3, false, None).unwrap();
        for number in [4, 99, u32::MAX] {
            let message = call(number, false, None).unwrap_err().message;
            assert_eq!(message, format!("no operation has number {number}"));
        }
    }
}
