// Shared by the attention kernels: WORKGROUP invocations as ROW_GROUPS × COLUMN_GROUPS over a tile
// of BQ queries and BK keys. An invocation owns RQ = BQ / ROW_GROUPS rows, and of each row the keys
// column_group + i · COLUMN_GROUPS in scores, the vectors column_group + i · COLUMN_GROUPS in
// results. Head dimensions are counted in vectors of four.
const VECTORS: u32 = HEAD_DIM / 4u;
const COLUMN_GROUPS: u32 = WORKGROUP / ROW_GROUPS;
const RQ: u32 = BQ / ROW_GROUPS;
const RK: u32 = BK / COLUMN_GROUPS;
const RV: u32 = (VECTORS + COLUMN_GROUPS - 1u) / COLUMN_GROUPS;
const LOG2_E: f32 = 1.4426950408889634;
const LN_2: f32 = 0.69314718055994531;
// Stands for minus infinity: some compilers reject the real one, and differences of it are NaN.
const MASKED: f32 = -1e30;
const UNMASKED: f32 = -5e29;
