// SPDX-License-Identifier: Apache-2.0
// Assertions change no type: a program without them may use a library that has them, and the other way round.
#include "layout.hpp"

#include <cstdio>

#ifdef NDEBUG
#error "this source is about programs with assertions"
#endif

std::array<std::size_t, layout.size()> layout_without_assertions();

int main()
{
    const auto without = layout_without_assertions();
    int differences = 0;
    for (std::size_t i = 0; i < layout.size(); ++i) {
        if (layout[i] == without[i])
            continue;
        ++differences;
        std::printf("number %zu of the types in layout.hpp: %s %zu with assertions, %zu without\n",
                    i % (layout.size() / 2), i < layout.size() / 2 ? "size" : "alignment", layout[i],
                    without[i]);
    }
    return differences == 0 ? 0 : 1;
}
