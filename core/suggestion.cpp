// SPDX-License-Identifier: Apache-2.0
#include <verbena/core/suggestion.hpp>

#include <algorithm>
#include <numeric>

namespace verbena {

namespace {

constexpr std::size_t longest_word = 64;

// Insertions, deletions, replacements and swaps of neighbours that make `a` of `b`.
std::size_t edit_distance(std::string_view a, std::string_view b)
{
    std::vector<std::size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
    std::iota(last.begin(), last.end(), std::size_t(0));
    for (std::size_t i = 1; i <= a.size(); ++i) {
        row[0] = i;
        for (std::size_t j = 1; j <= b.size(); ++j) {
            const std::size_t replaced = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
            row[j] = std::min({last[j] + 1, row[j - 1] + 1, replaced});
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = std::min(row[j], before[j - 2] + 1);
        }
        before.swap(last);
        last.swap(row);
    }
    return last[b.size()];
}

} // namespace

std::string_view nearest(std::string_view word, const std::vector<std::string_view>& candidates)
{
    if (word.size() > longest_word)
        return {};
    std::string_view best;
    std::size_t best_distance = std::max<std::size_t>(1, word.size() / 3) + 1;
    for (std::string_view candidate : candidates) {
        const std::size_t distance = edit_distance(word, candidate);
        if (distance < best_distance) {
            best = candidate;
            best_distance = distance;
        }
    }
    return best;
}

std::string did_you_mean(std::string_view word, const std::vector<std::string_view>& candidates)
{
    if (const std::string_view best = nearest(word, candidates); !best.empty())
        return "; did you mean " + std::string(best) + "?";
    std::string known = "; known:";
    for (std::string_view candidate : candidates)
        (known += ' ') += candidate;
    return known;
}

} // namespace verbena
