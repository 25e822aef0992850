"""Teams that build with blocks: texts on a wall (`strbuild-v0`) and houses from a blueprint (`housebuild-v0`)."""
