// SPDX-License-Identifier: Apache-2.0
// What server and client of the example kv agree on. As RFC 5531 would have it:
//
//   typedef opaque key<256>;
//   typedef opaque value<1048576>;
//   enum status { OK = 0, NOT_FOUND = 1, NO_SPACE = 2, BUSY = 3 };
//   union get_result switch (status s) { case OK: value data; default: void; };
//   struct stat_result { unsigned hyper keys, bytes, max_keys, max_bytes; };
//
//   program KV {
//       version KV_1 {
//           void NULL(void) = 0;
//           get_result GET(key) = 1;
//           status PUT(key, value) = 2;
//           status DELETE(key) = 3;
//           stat_result STAT(void) = 4;
//       } = 1;
//   } = 0x20000043;
//
// Over RPC-over-RDMA a protocol has to say which of its items may travel in chunks (RFC 8166 section 6). Here these are two: PUT's
// value comes in a Read chunk, GET's value goes into a Write chunk.
#pragma once

#include <cstdint>

namespace kv {

inline constexpr std::uint32_t program_number =
    0x20000043; // RFC 5531 8.4: 0x20000000 and up are the user's own
inline constexpr std::uint32_t version = 1;
inline constexpr std::uint32_t max_key = 256;                      // bytes
inline constexpr std::uint32_t max_value = std::uint32_t(1) << 20; // bytes

enum class procedure : std::uint32_t { null = 0, get = 1, put = 2, del = 3, stat = 4 };

enum class status : std::uint32_t {
    ok = 0,
    not_found = 1,
    no_space = 2, // a limit of the server: max_keys or max_bytes
    busy = 3,     // no memory at the moment: try again later
};

} // namespace kv
