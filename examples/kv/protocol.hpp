// SPDX-License-Identifier: Apache-2.0
// What server and client of the example kv agree on. As RFC 5531 would have it:
//
//   typedef string key<256>;
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

#include <verbena/protocols/rpc/procedure.hpp>

#include <cstdint>
#include <string_view>

namespace kv {

using namespace verbena;

using key = xdr::text<256>;
using data = rpc::bulk<std::uint32_t(1) << 20>;

enum class status : std::uint32_t {
    ok = 0,
    not_found = 1,
    no_space = 2, // a limit of the server: max_keys or max_bytes
    busy = 3,     // no memory at the moment: try again later
};
constexpr bool valid(status s) { return s <= status::busy; }
constexpr std::string_view to_string(status s)
{
    switch (s) {
    case status::ok: return "done";
    case status::not_found: return "no such key";
    case status::no_space: return "no space";
    case status::busy: return "busy";
    }
    return {};
}

struct key_args {
    kv::key key;
};
struct put_args {
    kv::key key;
    kv::data value;
};
struct get_result {
    kv::data value;
};
struct stat_result {
    std::uint64_t keys = 0;
    std::uint64_t bytes = 0;
    std::uint64_t max_keys = 0;
    std::uint64_t max_bytes = 0;
};

inline constexpr rpc::program_definition version_1{"kv", 0x20000043,
                                                   1}; // RFC 5531 8.4: 0x20000000 and up are the user's own
// A repeat of an old PUT would undo what another client put since.
inline constexpr rpc::procedure<key_args, get_result, status> get{version_1, 1, "GET", rpc::effect::none};
inline constexpr rpc::procedure<put_args, void, status> put{version_1, 2, "PUT", rpc::effect::changes};
inline constexpr rpc::procedure<key_args, void, status> del{version_1, 3, "DELETE", rpc::effect::changes};
inline constexpr rpc::procedure<void, stat_result> stat{version_1, 4, "STAT", rpc::effect::none};

} // namespace kv
