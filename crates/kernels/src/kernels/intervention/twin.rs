//! Twin of `00_intervene.wgsl`.

use super::{InterveneForward, InterventionEntry, InterventionKind, InterventionLayout};
use crate::error::Result;
use crate::twins::{Operands, Real, Twin, add_assign, cast, dot};

/// A row changed by the entries of a site that cover its position.
pub fn intervene_forward<R: Real>(
    row: &mut [R],
    words: &[u32],
    layout: InterventionLayout,
    (site, position): (usize, u32),
) {
    let [first, count] = [0, 1].map(|word| words[2 * site + word] as usize);
    let entries: Vec<InterventionEntry> =
        bytemuck::pod_collect_to_vec(&words[layout.entries..layout.vectors]);
    for entry in &entries[first..first + count] {
        if position.wrapping_sub(entry.first_position) >= entry.positions {
            continue;
        }
        let own = &mut row[entry.first_column as usize..][..entry.columns as usize];
        let factor = R::from_f64(f64::from(entry.factor));
        if entry.kind == InterventionKind::Scale as u32 {
            let off = entry.factor == 0.0;
            own.iter_mut().for_each(|x| *x = if off { R::ZERO } else { *x * factor });
            continue;
        }
        let vector: &[f32] = bytemuck::cast_slice(&words[entry.vector as usize..][..own.len()]);
        let vector: Vec<R> = cast(vector);
        if entry.kind == InterventionKind::Set as u32 {
            own.copy_from_slice(&vector);
            continue;
        }
        let projects = entry.kind == InterventionKind::Project as u32;
        let factor = if projects { factor * dot(own, &vector) } else { factor };
        let change: Vec<R> = vector.into_iter().map(|v| factor * v).collect();
        add_assign(own, &change);
    }
}

impl Twin for InterveneForward {
    fn run(&self, on: &mut Operands<'_>) -> Result<()> {
        let Self { columns, residual, layout } = *self;
        let (step, site) = (on.step()?, on.range()?.col0 as usize);
        let tokens = step.tokens as usize;
        let words = on.u32("interventions")?.to_vec();
        let documents = on.u32("documents")?[..tokens].to_vec();
        let mut rows = on.first("x", tokens * columns)?.to_vec();
        for ((t, row), start) in rows.chunks_exact_mut(columns).enumerate().zip(documents) {
            let position = (step.position + t as u32).wrapping_sub(start);
            intervene_forward(row, &words, layout, (site, position));
        }
        on.write("x", 0, &rows)?;
        if residual {
            add_assign(&mut rows, on.first("residual", tokens * columns)?);
            on.write("sum", 0, &rows)?;
        }
        Ok(())
    }
}
