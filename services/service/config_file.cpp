// SPDX-License-Identifier: Apache-2.0
#include <verbena/services/config_file.hpp>

#include <verbena/core/module/module_file.hpp>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <toml++/toml.h>

namespace verbena {

namespace {

// Deeper than any setting; the parser's own limit is 256.
constexpr unsigned max_table_depth = 16;

class toml_reader {
public:
    explicit toml_reader(std::string_view file) : file_(file) {}

    setting_values table(const toml::table& from, unsigned depth = 0) const
    {
        if (depth == max_table_depth)
            throw config_error(place(from.source()),
                               "tables lie deeper than " + std::to_string(max_table_depth) + " levels");
        setting_values to(place(from.source()));
        for (const auto& [key, node] : from) {
            setting_values::value v = value(node, depth);
            v.place = place(node.source());
            v.key_place = place(key.source());
            to.set(std::string(key.str()), std::move(v));
        }
        return to;
    }
    setting_place place(const toml::source_region& where) const
    {
        std::ostringstream text;
        text << file_ << ':' << where.begin.line << ':' << where.begin.column << ": ";
        return {text.str()};
    }

private:
    setting_values::value value(const toml::node& node, unsigned depth) const
    {
        using value = setting_values::value;
        if (const auto* flag = node.as_boolean())
            return value{flag->get()};
        if (const auto* number = node.as_integer())
            return value{number->get()};
        if (const auto* text = node.as_string())
            return value{text->get()};
        if (const auto* inner = node.as_table()) {
            value v{value::tables{table(*inner, depth + 1)}};
            v.is_table = true;
            return v;
        }
        if (const auto* array = node.as_array())
            return list(*array, depth);
        return value{setting_values::other{"a date, a time or a fraction"}};
    }
    setting_values::value list(const toml::array& from, unsigned depth) const
    {
        using value = setting_values::value;
        value v;
        if (std::ranges::all_of(from, [](const toml::node& n) { return n.is_string(); })) {
            value::texts texts;
            for (const toml::node& n : from) {
                texts.push_back(n.as_string()->get());
                v.element_places.push_back(place(n.source()));
            }
            v.data = std::move(texts);
        } else if (std::ranges::all_of(from, [](const toml::node& n) { return n.is_table(); })) {
            value::tables tables;
            for (const toml::node& n : from)
                tables.push_back(table(*n.as_table(), depth + 1));
            v.data = std::move(tables);
        } else {
            v.data = setting_values::other{"a list of something else"};
        }
        return v;
    }

    std::string_view file_;
};

toml::table to_table(const setting_values& from);

void insert_value(toml::table& to, const std::string& key, const setting_values::value& v)
{
    using value = setting_values::value;
    if (const auto* flag = std::get_if<bool>(&v.data)) {
        to.insert(key, *flag);
    } else if (const auto* number = std::get_if<std::int64_t>(&v.data)) {
        to.insert(key, *number);
    } else if (const auto* text = std::get_if<std::string>(&v.data)) {
        to.insert(key, *text);
    } else if (const auto* texts = std::get_if<value::texts>(&v.data)) {
        toml::array list;
        for (const std::string& text : *texts)
            list.push_back(text);
        to.insert(key, std::move(list));
    } else if (const auto* tables = std::get_if<value::tables>(&v.data)) {
        if (v.is_table) {
            to.insert(key, to_table(tables->front()));
            return;
        }
        toml::array list;
        for (const setting_values& t : *tables)
            list.push_back(to_table(t));
        to.insert(key, std::move(list));
    }
}

toml::table to_table(const setting_values& from)
{
    toml::table to;
    for (const auto& [key, v] : from.all())
        insert_value(to, key, v);
    return to;
}

} // namespace

setting_values parse_config(std::string_view text, std::string_view name)
{
    if (text.size() > max_config_size)
        throw config_error(std::string(name) + ": larger than 4 MiB");
    const toml_reader file(name);
    try {
        return file.table(toml::parse(text));
    } catch (const toml::parse_error& e) {
        throw config_error(file.place(e.source()), std::string(e.description()));
    }
}

setting_values load_config(const std::string& path)
{
    std::ifstream in(path, std::ios::binary);
    if (!in)
        throw config_error(path + ": can't be opened: " + std::generic_category().message(errno));
    std::string text(max_config_size + 1, '\0');
    in.read(text.data(), std::streamsize(text.size()));
    if (std::error_code ignored; std::filesystem::is_directory(path, ignored))
        throw config_error(path + ": is a directory: name the configuration file in it");
    if (in.bad())
        throw config_error(path + ": can't be read");
    text.resize(std::size_t(in.gcount()));
    return parse_config(text, path);
}

std::string to_toml(const setting_values& values)
{
    std::ostringstream out;
    out << toml::default_formatter(to_table(values)) << '\n';
    return out.str();
}

void load_modules(const setting_values& file, module_table& into)
{
    const setting_values::value* const list = file.find("modules");
    if (list == nullptr)
        return;
    const auto* const names = std::get_if<setting_values::value::texts>(&list->data);
    if (names == nullptr)
        throw config_error(list->place, "modules must be a list of strings");
    std::vector<std::string> loaded; // before
    for (const module_table::entry& e : into.all())
        loaded.push_back(e.from);
    for (std::size_t i = 0; i < names->size(); ++i) {
        at_place(file.place("modules", i), [&] {
            const std::string path = module_path((*names)[i]);
            if (std::ranges::find(loaded, path) == loaded.end())
                load_module(into, path);
        });
    }
}

} // namespace verbena
