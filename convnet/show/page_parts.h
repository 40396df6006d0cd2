// The parts that pages are made of: style, script, sections, tables and charts, as HTML.
#pragma once

#include <string>

#include "convnet/show/chart.h"

namespace convnet {

/// Follows kPageBegins: the head of a page up to its title, with the style.
extern const char* const kPageHead;
/// The script at the end of a page.
extern const char* const kPageScript;
/// A button that changes the scale of the charts below it.
inline constexpr const char* kScaleButton =
    "<p class=\"pointing\"><button class=\"scale\">logarithmic scale</button></p>\n";

/// Returns a heading and what is below it.
std::string section(const std::string& title, const std::string& body);
/// Returns a paragraph.
std::string note(const std::string& text, const char* classes = "note");
/// Returns a table of rows, which can be moved where it is wider than the page.
std::string wide_table(const std::string& rows, const char* classes);
/// Returns a chart on both scales, of which the page shows one.
std::string chart_element(Chart chart);

}  // namespace convnet
