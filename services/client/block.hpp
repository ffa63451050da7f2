// SPDX-License-Identifier: Apache-2.0
// `verbena block`: block devices of an RNBD server.
#pragma once

#include "commands.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace verbena::cli {

enum class block_command : std::uint8_t { info, read, write, discard, verify, bench };

struct block_options {
    block_command what = block_command::info;
    std::string url;                ///< rnbd+iwarp://HOST[:PORT]/DEVICE
    std::vector<std::string> paths; ///< more ways to the same server
    std::string session;            ///< empty: host and process
    unsigned connections = 1;       ///< of each path, beside the one for service messages
    std::string file;               ///< empty: standard input or output
    std::uint64_t offset = 0;
    std::optional<std::uint64_t> length; ///< none: to the end
    std::uint32_t size = 4096;           ///< bench: bytes of a request
    unsigned depth = 32;
    double seconds = 5;
    bool writes = false;
    bool random = true;
    std::optional<std::uint64_t> seed; ///< verify: of the bytes; none: one is drawn, to write
    bool verify_writes = false;
    bool verify_reads = false;
};
task<int> block(runtime& r, block_options o);

} // namespace verbena::cli
