// SPDX-License-Identifier: Apache-2.0
// Runs a fuzz target over its corpus, without libFuzzer: `replay_NAME FOLDER`.

#include "fuzz.hpp"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>

int main(int argc, char** argv)
{
    if (argc != 2)
        return 2;
    std::size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(argv[1])) {
        std::ifstream file(entry.path(), std::ios::binary);
        const std::string text((std::istreambuf_iterator<char>(file)), {});
        // On the heap in its exact size, so that AddressSanitizer sees a read behind it.
        const auto input = std::make_unique<std::uint8_t[]>(text.size());
        std::copy(text.begin(), text.end(), input.get());
        LLVMFuzzerTestOneInput(input.get(), text.size());
        ++count;
    }
    std::printf("%zu inputs\n", count);
    return count == 0 ? 1 : 0;
}
