// SPDX-License-Identifier: Apache-2.0
// Runs the fuzz targets over their corpora, without libFuzzer: `fuzz_corpora FOLDER [NAME...]`, FOLDER holding a corpus of
// each target's name. Fails if a target has no corpus, or a corpus no target.

#include "fuzz.hpp"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <string>

namespace {

std::map<std::string, verbena::fuzz::target>& targets()
{
    static std::map<std::string, verbena::fuzz::target> known;
    return known;
}

std::size_t replay(verbena::fuzz::target run, const std::filesystem::path& corpus)
{
    std::size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(corpus)) {
        std::ifstream file(entry.path(), std::ios::binary);
        const std::string text((std::istreambuf_iterator<char>(file)), {});
        std::fprintf(stderr, "%s\r", entry.path().c_str()); // which one it was, if it ends the process
        // On the heap in its exact size, so that AddressSanitizer sees a read behind it.
        const auto input = std::make_unique<std::uint8_t[]>(text.size());
        std::copy(text.begin(), text.end(), input.get());
        run(input.get(), text.size());
        ++count;
    }
    return count;
}

} // namespace

verbena::fuzz::known_target::known_target(const char* name, target run) { targets().emplace(name, run); }

int main(int argc, char** argv)
{
    if (argc < 2) {
        std::fprintf(stderr, "fuzz_corpora FOLDER [NAME...]\n");
        return 2;
    }
    const std::filesystem::path folder = argv[1];
    int failed = 0;
    for (const auto& [name, run] : targets()) {
        if (argc > 2 && std::find(argv + 2, argv + argc, name) == argv + argc)
            continue;
        const std::size_t count =
            std::filesystem::is_directory(folder / name) ? replay(run, folder / name) : 0;
        std::printf("%s: %zu inputs\n", name.c_str(), count);
        failed += count == 0 ? 1 : 0;
    }
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
        if (!targets().contains(entry.path().filename())) {
            std::printf("%s has no target\n", entry.path().c_str());
            ++failed;
        }
    }
    return failed == 0 ? 0 : 1;
}
