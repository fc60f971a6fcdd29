// One product of the tensor cores, mma.m16n8k16 with f32 sums, and the fragments of its operands,
// which a warp loads from shared memory four quarters of 8 x 8 elements at a time (ldmatrix).
// Of a warp's lanes, lane l holds row l / 4 (and that + 8) of a and c, column l / 4 of b, and of
// the other dim the pairs at 2 (l % 4) (and that + 8). PTX ISA, "Matrix Fragments for
// mma.m16n8k16".
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace weft {

// Two neighbouring elements in each register.
struct FragmentA {
  uint32_t at[4];  // rows l/4, l/4 + 8; then the same for the second half of k
};
struct FragmentB {
  uint32_t at[2];  // halves of k
};
struct FragmentC {
  float at[4];  // row l/4: two columns; row l/4 + 8: two columns
};

// Four matrices [8, 8] of 16-bit elements: lane 8 i + r says where row r of matrix i lies, aligned
// to 16 bytes. to[i] = the pair at row l/4, columns 2 (l % 4), of matrix i.
__device__ __forceinline__ void LoadMatrices(const void* row, uint32_t (&to)[4]) {
  const auto at = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(at)
               : "memory");
}
// The same of the transposed matrices.
__device__ __forceinline__ void LoadTransposed(const void* row, uint32_t (&to)[4]) {
  const auto at = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(at)
               : "memory");
}

// c += a b.
template <typename T>
__device__ void MultiplyAdd(const FragmentA& a, const FragmentB& b, FragmentC* c);

template <>
__device__ __forceinline__ void MultiplyAdd<__nv_bfloat16>(const FragmentA& a, const FragmentB& b,
                                                           FragmentC* c) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c->at[0]), "+f"(c->at[1]), "+f"(c->at[2]), "+f"(c->at[3])
      : "r"(a.at[0]), "r"(a.at[1]), "r"(a.at[2]), "r"(a.at[3]), "r"(b.at[0]), "r"(b.at[1]));
}

template <>
__device__ __forceinline__ void MultiplyAdd<__half>(const FragmentA& a, const FragmentB& b,
                                                    FragmentC* c) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c->at[0]), "+f"(c->at[1]), "+f"(c->at[2]), "+f"(c->at[3])
      : "r"(a.at[0]), "r"(a.at[1]), "r"(a.at[2]), "r"(a.at[3]), "r"(b.at[0]), "r"(b.at[1]));
}

}  // namespace weft
